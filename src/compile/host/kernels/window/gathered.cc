#include "compile/host/kernels/window/gathered.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_plan.h"
#include "compile/host/kernels/gemm/gemm_scratch.h"

namespace tessera::kernels {

namespace {

using Offsets = std::vector<std::int64_t>;

constexpr std::int64_t kFewestProducts = 4;
constexpr std::int64_t kMostTerms = 256;  // of a piece, unless a grain is longer
constexpr std::int64_t kUnit = 8;         // floats that are copied at once
// Rows of A that are next to each other in a copy: a line. Products with fewer rows take too little
// time beside that of their copies.
constexpr std::int64_t kRowBlock = 16;
constexpr std::int64_t kFewestRows = 2 * kRowBlock;
constexpr std::int64_t kMostRows = 4 * kRowBlock;
constexpr std::int64_t kMostColumns = 64;

thread_local gemm::Scratch t_gathered;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool follow_each_other(const Offsets& offsets) {
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] != offsets[i - 1] + 1) return false;
  }
  return true;
}

/// Equally spaced vectors of an operand.
struct VectorRun {
  std::int64_t from, step, count;
};

/// Where the vectors that a piece of an operand consists of come from. The copy is cut into blocks
/// of columns; the vector with the number p has the p-th place in each.
struct Copies {
  std::int64_t width = 0;  // of a vector
  std::int64_t block = 0;  // columns of a block
  std::int64_t most = 0;   // vectors of a piece
  std::vector<VectorRun> runs;
  std::vector<std::size_t> ends;  // of the runs of each piece

  // Blocks at a distance of a power of two would compete for the same lines.
  std::int64_t block_floats() const { return most * block + gemm::kPanelGap; }
  std::int64_t floats() const { return gemm::ceil_div(width, block) * block_floats(); }
  std::int64_t place_of_column(std::int64_t column) const {
    return column / block * block_floats() + column % block;
  }

  void add_piece(const Offsets& offsets);
  void copy(const float* from, std::int64_t piece, float* to) const;
};

void Copies::add_piece(const Offsets& offsets) {
  most = std::max(most, std::ssize(offsets));
  const std::size_t first = runs.size();
  for (const std::int64_t offset : offsets) {
    if (runs.size() > first) {
      VectorRun& last = runs.back();
      if (last.count == 1) last.step = offset - last.from;
      if (offset == last.from + last.count * last.step) {
        ++last.count;
        continue;
      }
    }
    runs.push_back({.from = offset, .step = 0, .count = 1});
  }
  ends.push_back(runs.size());
}

void copy_columns(const VectorRun& run, const float* from, std::int64_t columns, std::int64_t block,
                  float* to) {
  from += run.from;
  for (std::int64_t i = 0; i < run.count; ++i, from += run.step, to += block) {
    std::int64_t done = 0;
    for (; done + kUnit <= columns; done += kUnit)
      std::memcpy(to + done, from + done, kUnit * sizeof(float));
    for (; done < columns; ++done) to[done] = from[done];
  }
}

void Copies::copy(const float* from, std::int64_t piece, float* to) const {
  for (std::int64_t column = 0; column < width; column += block) {
    float* next = to + place_of_column(column);
    for (std::size_t r = piece == 0 ? 0 : ends[at(piece - 1)]; r < ends[at(piece)]; ++r) {
      copy_columns(runs[r], from + column, std::min(block, width - column), block, next);
      next += runs[r].count * block;
    }
  }
}

/// Numbers the vectors that products read, piece by piece.
class Numbering {
 public:
  Numbering(std::int64_t least, std::int64_t most, std::int64_t width)
      : least_(least), width_(width), seen_(at((most - least) / width + 1)) {}

  /// Returns false if vectors overlap.
  bool add(std::int64_t offset) {
    Seen& seen = seen_at(offset);
    if (seen.piece == piece_) return seen.offset == offset;
    seen = {.offset = offset, .piece = piece_, .number = 0};
    offsets_.push_back(offset);
    return true;
  }
  /// Those added since the last call follow each other in the order of memory.
  void sort() {
    std::sort(offsets_.begin() + sorted_, offsets_.end());
    for (; sorted_ < std::ssize(offsets_); ++sorted_)
      seen_at(offsets_[at(sorted_)]).number = static_cast<std::int32_t>(sorted_);
  }
  std::int64_t number_of(std::int64_t offset) { return seen_at(offset).number; }
  const Offsets& offsets() const { return offsets_; }
  void begin_piece() {
    ++piece_;
    offsets_.clear();
    sorted_ = 0;
  }

 private:
  struct Seen {
    std::int64_t offset = 0;
    std::int32_t piece = 0, number = 0;
  };
  Seen& seen_at(std::int64_t offset) { return seen_[at((offset - least_) / width_)]; }

  std::int64_t least_, width_;
  std::vector<Seen> seen_;
  std::int32_t piece_ = 0;
  Offsets offsets_;  // of the piece
  std::int64_t sorted_ = 0;
};

std::int64_t first_of(const GemmOperand& operand) { return operand.batch[0] + operand.outer[0]; }

/// Rewrites problems so that they read copies.
class Gathering {
 public:
  explicit Gathering(std::vector<GemmProblem> read)
      : problems(std::move(read)), leaves_(std::ssize(problems[0].leaf_ends)) {}

  /// Copies are made of subtrees and take at most this many floats. Returns false if that is
  /// impossible.
  bool run(std::int64_t most_floats);

  std::vector<GemmProblem> problems;
  Copies a, b;

 private:
  enum class Order : std::uint8_t { memory, grains };

  static std::int64_t begin_of(const GemmProblem& p, std::int64_t leaf) {
    return leaf == 0 ? 0 : p.leaf_ends[at(leaf - 1)];
  }
  bool are_short(std::int64_t leaves) const;
  bool gather(std::int64_t leaves, GemmOperand GemmProblem::*operand, Order order, Copies& copies);
  bool number(std::int64_t leaf, std::int64_t leaves, GemmOperand GemmProblem::*operand,
              Order order, Numbering& numbering) const;

  std::int64_t leaves_;
};

bool Gathering::are_short(std::int64_t leaves) const {
  for (const GemmProblem& p : problems) {
    for (std::int64_t leaf = 0; leaf < leaves_; leaf += leaves) {
      if (p.leaf_ends[at(leaf + leaves - 1)] - begin_of(p, leaf) > kMostTerms) return false;
    }
  }
  return true;
}

bool Gathering::run(std::int64_t most_floats) {
  std::int64_t leaves = 1;
  while (leaves_ % (2 * leaves) == 0 && are_short(2 * leaves)) leaves *= 2;
  const std::vector<GemmProblem> given = problems;
  for (; leaves > 0; leaves /= 2) {
    a = {.width = std::ssize(given[0].a.outer), .block = kRowBlock, .runs = {}, .ends = {}};
    b = {
        .width = std::ssize(given[0].b.outer), .block = gemm::kernels().nr, .runs = {}, .ends = {}};
    // Several products share vectors of A. Those of B are read in the order of the sum.
    if (!gather(leaves, &GemmProblem::a, Order::memory, a) ||
        !gather(leaves, &GemmProblem::b, Order::grains, b))
      return false;
    if (a.floats() + b.floats() <= most_floats) break;
    problems = given;
  }
  for (GemmProblem& p : problems) p.pieces = leaves == 0 ? 1 : leaves_ / leaves;
  return leaves > 0;
}

bool Gathering::number(std::int64_t leaf, std::int64_t leaves, GemmOperand GemmProblem::*operand,
                       Order order, Numbering& numbering) const {
  numbering.begin_piece();
  for (const std::int64_t end = leaf + leaves; leaf < end; ++leaf) {
    for (const GemmProblem& p : problems) {
      const GemmOperand& read = p.*operand;
      for (std::int64_t i = begin_of(p, leaf); i < p.leaf_ends[at(leaf)]; ++i) {
        if (!numbering.add(first_of(read) + read.k[at(i)])) return false;
      }
    }
    if (order == Order::grains) numbering.sort();
  }
  numbering.sort();
  return true;
}

bool Gathering::gather(std::int64_t leaves, GemmOperand GemmProblem::*operand, Order order,
                       Copies& copies) {
  std::int64_t least = first_of(problems[0].*operand), most = least;
  for (const GemmProblem& p : problems) {
    for (const std::int64_t k : (p.*operand).k) {
      least = std::min(least, first_of(p.*operand) + k);
      most = std::max(most, first_of(p.*operand) + k);
    }
  }
  Numbering numbering(least, most, copies.width);
  for (std::int64_t leaf = 0; leaf < leaves_; leaf += leaves) {
    if (!number(leaf, leaves, operand, order, numbering)) return false;
    copies.add_piece(numbering.offsets());
    for (GemmProblem& p : problems) {
      const std::int64_t first = first_of(p.*operand), end = p.leaf_ends[at(leaf + leaves - 1)];
      for (std::int64_t i = begin_of(p, leaf); i < end; ++i) {
        std::int64_t& k = (p.*operand).k[at(i)];
        k = numbering.number_of(first + k) * copies.block;
      }
    }
  }
  for (GemmProblem& p : problems) {
    (p.*operand).batch[0] = 0;
    for (std::int64_t i = 0; i < copies.width; ++i)
      (p.*operand).outer[at(i)] = copies.place_of_column(i);
  }
  return true;
}

bool is_gathered(const GemmProblem& p, const GemmProblem& first) {
  const std::int64_t rows = std::ssize(p.a.outer), columns = std::ssize(p.b.outer);
  return p.a.batch.size() == 1 && p.products == 1 && p.pieces == 1 && p.row_ends.empty() &&
         rows >= kFewestRows && rows <= kMostRows && columns > 0 && columns <= kMostColumns &&
         columns % gemm::kernels().lanes == 0 && p.leaf_ends.size() == first.leaf_ends.size() &&
         p.a.outer.size() == first.a.outer.size() && p.b.outer.size() == first.b.outer.size() &&
         follow_each_other(p.a.outer) && follow_each_other(p.b.outer);
}

/// Where rows are in C if they are cut into parts of this size that differ in nothing else: the
/// distance of the parts. Empty if they do differ.
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

/// A part has some of the rows of a group of products. Other rows need other columns of A, and all
/// groups and parts copy B for themselves, so parts are as large as possible.
struct GatheredProducts::State {
  std::vector<ProductGroup> groups;
  std::int64_t row_parts = 1;
  std::int64_t rows_of_part = 0, c_of_part = 0;

  bool cut_rows(std::span<const GemmProblem> problems, int num_workers);
  bool add_group(std::span<const GemmProblem> problems, const CacheSizes& caches);
};

bool GatheredProducts::State::cut_rows(std::span<const GemmProblem> problems, int num_workers) {
  const std::int64_t rows = std::ssize(problems[0].a.outer);
  for (row_parts = std::min<std::int64_t>(num_workers, rows / kRowBlock); row_parts > 1;
       --row_parts) {
    if (rows % (row_parts * kRowBlock) == 0) break;
  }
  rows_of_part = rows / row_parts;
  const auto distance = distance_of_parts(problems, rows_of_part);
  c_of_part = distance.value_or(0);
  return distance.has_value();
}

bool GatheredProducts::State::add_group(std::span<const GemmProblem> problems,
                                        const CacheSizes& caches) {
  std::vector<GemmProblem> read(problems.begin(), problems.end());
  for (GemmProblem& p : read) {
    p.a.outer.resize(at(rows_of_part));
    p.c_rows.resize(at(rows_of_part));
  }
  Gathering gathering(std::move(read));
  if (!gathering.run(caches.l2 / static_cast<std::int64_t>(2 * sizeof(float)))) return false;
  ProductGroup& group = groups.emplace_back();
  group.a = std::move(gathering.a);
  group.b = std::move(gathering.b);
  group.pieces = gathering.problems[0].pieces;
  for (GemmProblem& problem : gathering.problems)
    group.plans.emplace_back(std::move(problem), 1, caches);
  return true;
}

std::optional<GatheredProducts> GatheredProducts::of(std::span<const GemmProblem> problems,
                                                     int num_workers, const CacheSizes& caches) {
  const std::int64_t count = std::ssize(problems);
  if (count < kFewestProducts || !std::all_of(problems.begin(), problems.end(), [&](const auto& p) {
        return is_gathered(p, problems[0]);
      }))
    return std::nullopt;
  auto state = std::make_unique<State>();
  if (!state->cut_rows(problems, num_workers)) return std::nullopt;
  const std::int64_t groups = std::clamp<std::int64_t>(
      gemm::ceil_div(num_workers, state->row_parts), 1, count / kFewestProducts);
  for (std::int64_t i = 0; i < groups; ++i) {
    const gemm::Range range = gemm::Range{0, count}.piece(i, groups);
    if (!state->add_group(problems.subspan(at(range.begin), at(range.size())), caches))
      return std::nullopt;
  }
  return GatheredProducts(std::move(state));
}

GatheredProducts::GatheredProducts(std::unique_ptr<const State> state) : state_(std::move(state)) {}
GatheredProducts::~GatheredProducts() = default;
GatheredProducts::GatheredProducts(GatheredProducts&&) noexcept = default;
GatheredProducts& GatheredProducts::operator=(GatheredProducts&&) noexcept = default;

std::int64_t GatheredProducts::flops() const {
  std::int64_t sum = 0;
  for (const ProductGroup& group : state_->groups) {
    for (const GemmPlan& plan : group.plans) sum += plan.flops();
  }
  return sum * state_->row_parts;
}

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

void GatheredProducts::run(const float* a, const float* b, float* c, int part) const {
  const ProductGroup& group = state_->groups[at(part / state_->row_parts)];
  const std::int64_t rows = part % state_->row_parts;
  a += rows * state_->rows_of_part;
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
