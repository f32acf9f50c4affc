#include "compile/host/kernels/window/gathered.h"

#include <algorithm>
#include <vector>

#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_plan.h"
#include "compile/host/kernels/gemm/gemm_scratch.h"
#include "compile/host/kernels/window/gathering.h"

namespace tessera::kernels {

namespace {

using gather::at;
using gather::Copies;
using gather::Offsets;

constexpr std::int64_t kFewestProducts = 4;
constexpr std::int64_t kMostRows = 64;
constexpr std::int64_t kMostColumns = 64;
constexpr std::int64_t kMostSteps = 1024;  // of a piece, unless a grain has more

/// Which products are worth copies, and how large the copies are. Products with fewer rows take too
/// little time compared with the copies.
struct Limits {
  std::int64_t fewest_rows;
  std::int64_t unit_of_columns;
  std::int64_t part_of_l2;  // that a piece may take: 2 is a half
};

Limits limits_of_floats() {
  return {.fewest_rows = 32, .unit_of_columns = gemm::kernels().lanes, .part_of_l2 = 2};
}

// Without copies, each product makes its own words, so copies pay off sooner.
Limits limits_of_words() { return {.fewest_rows = 8, .unit_of_columns = 1, .part_of_l2 = 4}; }

thread_local gemm::Scratch t_gathered;

bool follow_each_other(const Offsets& offsets) {
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] != offsets[i - 1] + 1) return false;
  }
  return true;
}

bool is_gathered(const GemmProblem& p, const GemmProblem& first, const Limits& limits) {
  const std::int64_t rows = std::ssize(p.a.outer), columns = std::ssize(p.b.outer);
  return p.a.batch.size() == 1 && p.products == 1 && p.pieces == 1 && p.row_ends.empty() &&
         rows >= limits.fewest_rows && rows <= kMostRows && columns > 0 &&
         columns <= kMostColumns && columns % limits.unit_of_columns == 0 &&
         p.leaf_ends.size() == first.leaf_ends.size() && p.a.outer.size() == first.a.outer.size() &&
         p.b.outer.size() == first.b.outer.size() && follow_each_other(p.a.outer) &&
         follow_each_other(p.b.outer);
}

/// Adds products with adjacent rows. Elements of a window that are multiplied by the same terms are
/// one problem, whose rows are those of each element in turn. It becomes one product per element.
void add_adjacent(const GemmProblem& p, std::vector<GemmProblem>& products) {
  const Offsets& outer = p.a.outer;
  const auto next =
      outer.empty() ? outer.end() : std::find(outer.begin(), outer.end(), outer.front() + 1);
  const std::int64_t elements = next == outer.end() ? 1 : next - outer.begin();
  for (std::int64_t element = 0; element < elements; ++element) {
    GemmProblem& product = products.emplace_back(p);
    product.a.outer.clear();
    product.c_rows.clear();
    for (std::int64_t row = element; row < std::ssize(outer); row += elements) {
      product.a.outer.push_back(outer[at(row)]);
      product.c_rows.push_back(p.c_rows[at(row)]);
    }
  }
}

/// If the rows are cut into parts of this size, and a constant distance leads from the rows in C of
/// each part to those of the next part: this distance. Otherwise empty.
std::optional<std::int64_t> distance_of_parts(std::span<const GemmProblem> problems,
                                              std::int64_t rows_of_part) {
  const std::int64_t rows = std::ssize(problems[0].a.outer);
  if (rows % rows_of_part != 0) return std::nullopt;
  if (rows == rows_of_part) return 0;
  const Offsets& of_first = problems[0].c_rows;
  const std::int64_t distance = of_first[at(rows_of_part)] - of_first[0];
  for (const GemmProblem& p : problems) {
    for (std::int64_t i = rows_of_part; i < rows; ++i) {
      if (p.c_rows[at(i)] - p.c_rows[at(i - rows_of_part)] != distance) return std::nullopt;
    }
  }
  return distance;
}

/// Products that are computed together.
struct ProductGroup {
  Copies a, b;
  std::int64_t pieces = 1;
  std::vector<GemmPlan> plans;

  std::int64_t copied_floats() const { return a.floats() + b.floats(); }
};

}  // namespace

/// A part has some of the rows of a group of products. Different rows need different columns of A,
/// but each group and each part copies B for itself. So parts are as large as possible.
struct GatheredProducts::State {
  gemm::WordsKernel make_words = nullptr;  // nullptr: products of floats
  Limits limits;
  CacheSizes caches;
  std::vector<ProductGroup> groups;
  std::int64_t row_parts = 1;
  std::int64_t rows_of_part = 0, c_of_part = 0;
  std::int64_t flops = 0;

  static std::optional<GatheredProducts> make(std::unique_ptr<State> state,
                                              std::span<const GemmProblem> problems,
                                              int num_workers);
  bool cut_rows(std::span<const GemmProblem> problems, int num_workers);
  bool add_group(std::vector<GemmProblem> products, std::span<const GemmProblem> shared,
                 const gemm::Range& of_shared);
};

bool GatheredProducts::State::cut_rows(std::span<const GemmProblem> problems, int num_workers) {
  const std::int64_t rows = std::ssize(problems[0].a.outer), unit = gather::kRowBlock;
  for (row_parts = std::clamp<std::int64_t>(rows / unit, 1, num_workers); row_parts > 1;
       --row_parts) {
    if (rows % (row_parts * unit) == 0) break;
  }
  rows_of_part = rows / row_parts;
  const auto distance = distance_of_parts(problems, rows_of_part);
  c_of_part = distance.value_or(0);
  return distance.has_value();
}

// Adds a group of `products`, followed by the products that all groups share. This group computes
// only the rows `of_shared` of the shared ones.
bool GatheredProducts::State::add_group(std::vector<GemmProblem> products,
                                        std::span<const GemmProblem> shared,
                                        const gemm::Range& of_shared) {
  products.insert(products.end(), shared.begin(), shared.end());
  for (GemmProblem& p : products) {
    p.a.outer.resize(at(rows_of_part));
    p.c_rows.resize(at(rows_of_part));
  }
  gather::Gathering gathering(products);
  if (make_words != nullptr) gathering.take_pairs(make_words);
  const std::int64_t most_floats =
      caches.l2 / limits.part_of_l2 / static_cast<std::int64_t>(sizeof(float));
  if (!gathering.run(most_floats, kMostSteps)) return false;
  ProductGroup& group = groups.emplace_back();
  group.a = std::move(gathering.a);
  group.b = std::move(gathering.b);
  group.pieces = gathering.products[0].problem.pieces;
  for (gather::Reads& product : gathering.products) {
    GemmProblem& p = product.problem;
    if (std::ssize(group.plans) >= std::ssize(products) - std::ssize(shared)) {
      for (Offsets* rows : {&p.a.outer, &p.c_rows})
        *rows = Offsets(rows->begin() + of_shared.begin, rows->begin() + of_shared.end);
    }
    group.plans.push_back(make_words == nullptr ? GemmPlan(std::move(p), 1, caches)
                                                : GemmPlan::of_words(std::move(p), 1, caches));
  }
  return true;
}

std::optional<GatheredProducts> GatheredProducts::State::make(std::unique_ptr<State> state,
                                                              std::span<const GemmProblem> problems,
                                                              int num_workers) {
  const std::int64_t count = std::ssize(problems);
  if (count < kFewestProducts || !std::all_of(problems.begin(), problems.end(), [&](const auto& p) {
        return is_gathered(p, problems[0], state->limits);
      }))
    return std::nullopt;
  if (!state->cut_rows(problems, num_workers)) return std::nullopt;
  const std::int64_t groups =
      std::clamp<std::int64_t>(gemm::ceil_div(num_workers, state->row_parts), 1, count);
  const gemm::Range rows{0, state->rows_of_part};
  // All groups have equally many products; the products that are left over are cut along their
  // rows. Plans with fewer rows would not go through the pieces together with the others.
  const bool can_cut = rows.size() % groups == 0 && rows.size() / groups > gemm::kMostFewRows;
  const std::int64_t left = can_cut ? count % groups : 0;
  for (std::int64_t i = 0; i < groups; ++i) {
    const gemm::Range own = gemm::Range{0, count - left}.piece(i, groups);
    if (!state->add_group({problems.begin() + own.begin, problems.begin() + own.end},
                          problems.last(at(left)), rows.piece(i, groups)))
      return std::nullopt;
  }
  for (const GemmProblem& p : problems)
    state->flops += 2 * std::ssize(p.a.outer) * std::ssize(p.b.outer) * std::ssize(p.a.k);
  return GatheredProducts(std::move(state));
}

std::optional<GatheredProducts> GatheredProducts::of(std::span<const GemmProblem> problems,
                                                     int num_workers, const CacheSizes& caches) {
  auto state = std::make_unique<State>();
  state->limits = limits_of_floats();
  state->caches = caches;
  return State::make(std::move(state), problems, num_workers);
}

std::optional<GatheredProducts> GatheredProducts::of_pairs(std::span<const GemmProblem> problems,
                                                           int num_workers,
                                                           const CacheSizes& caches) {
  const gemm::Unit unit = gemm::unit_of_words();
  if (unit.kernels == nullptr) return std::nullopt;
  auto state = std::make_unique<State>();
  std::vector<GemmProblem> products;
  for (const GemmProblem& p : problems) add_adjacent(p, products);
  state->make_words = unit.make_words;
  state->limits = limits_of_words();
  state->caches = caches;
  return State::make(std::move(state), products, num_workers);
}

GatheredProducts::GatheredProducts(std::unique_ptr<const State> state) : state_(std::move(state)) {}
GatheredProducts::~GatheredProducts() = default;
GatheredProducts::GatheredProducts(GatheredProducts&&) noexcept = default;
GatheredProducts& GatheredProducts::operator=(GatheredProducts&&) noexcept = default;

std::int64_t GatheredProducts::flops() const { return state_->flops; }

int GatheredProducts::num_parts() const {
  return static_cast<int>(std::ssize(state_->groups) * state_->row_parts);
}

std::int64_t GatheredProducts::scratch_bytes() const {
  std::int64_t most = 0;
  for (const ProductGroup& group : state_->groups) {
    std::int64_t sum = group.copied_floats() * static_cast<std::int64_t>(sizeof(float));
    for (const GemmPlan& plan : group.plans) sum += plan.scratch_bytes();
    most = std::max(most, sum);
  }
  return most;
}

void GatheredProducts::run(const void* a, const void* b, float* c, int part) const {
  const ProductGroup& group = state_->groups[at(part / state_->row_parts)];
  const std::int64_t rows = part % state_->row_parts;
  const bool is_words = state_->make_words != nullptr;
  const auto element_bytes =
      static_cast<std::int64_t>(is_words ? sizeof(std::uint16_t) : sizeof(float));
  a = static_cast<const std::byte*>(a) + rows * state_->rows_of_part * element_bytes;
  c += rows * state_->c_of_part;
  float* copy_of_a = t_gathered.reserve(group.copied_floats());
  float* copy_of_b = copy_of_a + group.a.floats();
  std::vector<GemmPlan::PartOfPlan> parts;
  for (const GemmPlan& plan : group.plans) parts.push_back({&plan, 0});
  const std::vector<const void*> all_a(at(group.pieces), copy_of_a);
  const std::vector<const void*> all_b(at(group.pieces), copy_of_b);
  GemmPlan::run_together(parts, all_a, all_b, {&c, 1}, [&](std::int64_t piece) {
    group.a.copy(a, piece, copy_of_a);
    group.b.copy(b, piece, copy_of_b);
  });
}

}  // namespace tessera::kernels
