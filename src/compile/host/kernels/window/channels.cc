#include "compile/host/kernels/window/channels.h"

#include <algorithm>

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/window/channels.cc"  // NOLINT
#include <hwy/foreach_target.h>

#include "compile/host/kernels/window/channels-inl.h"

#if HWY_ONCE

#include <numeric>

#include "compile/host/kernels/gemm/gemm_scratch.h"
#include "compile/host/kernels/parts.h"
#include "compile/host/kernels/window/channels_internal.h"

namespace tessera::kernels {

HWY_EXPORT(RunMany);
HWY_EXPORT(RunFew);

namespace channels {

void run_many(const ManyRows& many, std::int64_t channels, std::int64_t first, std::int64_t last,
              const float* a, const float* b, float* c) {
  HWY_DYNAMIC_DISPATCH(RunMany)(many, channels, first, last, a, b, c);
}

void run_few(const FewRows& few, std::int64_t begin, std::int64_t end, const float* a,
             const float* b, float* nodes) {
  HWY_DYNAMIC_DISPATCH(RunFew)(few, begin, end, a, b, nodes);
}

}  // namespace channels

namespace {

using channels::FewRows;
using channels::ManyRows;
using Offsets = std::vector<std::int64_t>;

constexpr std::int64_t kMostTerms = 256;  // of each of many rows
constexpr std::int64_t kFewRows = 64;
constexpr std::int64_t kFewestChannels = 8;
constexpr std::int64_t kPartFlops = 1 << 20;  // least work of a part

thread_local gemm::Scratch t_scratch;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool are_adjacent(const Offsets& offsets) {
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] != offsets[i - 1] + 1) return false;
  }
  return true;
}

bool is_by_channel(const GemmProblem& p, std::size_t channels) {
  return p.b.outer.size() == 1 && p.a.batch.size() == channels && p.products == 1 &&
         p.pieces == 1 && p.row_ends.empty() && are_adjacent(p.a.batch) && are_adjacent(p.b.batch);
}

/// Empty if too many nodes would wait on the stack.
std::optional<ManyRows> many_rows(const GemmProblem& p) {
  gemm::TreeProgram tree = gemm::make_tree_program(p.leaf_ends, 1, kMostTerms, 1, false);
  if (tree.stack_depth > channels::kMostWaiting) return std::nullopt;
  ManyRows many{.a = {}, .c = {}, .a_k = p.a.k, .b_k = p.b.k, .segments = std::move(tree.segments)};
  for (std::int64_t& offset : many.b_k) offset += p.b.outer[0] + p.b.batch[0];
  if (!p.a.k.empty()) many.a_last = *std::max_element(p.a.k.begin(), p.a.k.end());
  std::vector<std::size_t> order(p.a.outer.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t x, std::size_t y) { return p.a.outer[x] < p.a.outer[y]; });
  for (const std::size_t i : order) {
    many.a.push_back(p.a.outer[i] + p.a.batch[0]);
    many.c.push_back(p.c_rows[i] + p.c_batch[0]);
  }
  return many;
}

/// Turns the terms of a grain, given row by row, into runs of the elements of B by which they are
/// multiplied. Each row has its elements of B in ascending order.
class Runs {
 public:
  explicit Runs(FewRows& few) : few_(few) {}

  /// The position of a row in its terms: those of `p` in [next, end) are left.
  struct Cursor {
    const GemmProblem* p;
    std::int64_t a;  // of the row
    std::int32_t row;
    std::int64_t next, end;
    std::int64_t b_at() const { return p->b.k[at(next)] + p->b.outer[0] + p->b.batch[0]; }
    std::int64_t a_at() const { return a + p->a.k[at(next)]; }
  };

  void add_grain(std::vector<Cursor> rows) {
    open_ = false;
    while (true) {
      std::erase_if(rows, [](const Cursor& row) { return row.next == row.end; });
      if (rows.empty()) return;
      std::int64_t least = rows[0].b_at();
      for (const Cursor& row : rows) least = std::min(least, row.b_at());
      met_.clear();
      for (Cursor& row : rows) {
        if (row.b_at() != least) continue;
        met_.push_back({row.a_at(), row.row});
        ++row.next;
      }
      if (!extends(least)) begin(least);
      last_b_ = least;
      last_a_ = met_[0].a;
    }
  }

 private:
  /// Whether the rows of this element continue the last run.
  bool extends(std::int64_t b) {
    if (!open_) return false;
    channels::Run& run = few_.runs.back();
    if (static_cast<std::size_t>(run.rows) != met_.size()) return false;
    const std::int64_t b_step = b - last_b_, a_step = met_[0].a - last_a_;
    if (run.count > 1 && (b_step != run.b_step || a_step != run.a_step)) return false;
    for (std::size_t i = 0; i < met_.size(); ++i) {
      const channels::Meets& first = few_.meets[at(run.first) + i];
      if (first.row != met_[i].row || met_[i].a != first.a + run.count * a_step) return false;
    }
    run.b_step = b_step;
    run.a_step = a_step;
    ++run.count;
    return true;
  }

  void begin(std::int64_t b) {
    few_.runs.push_back({.b = b,
                         .b_step = 0,
                         .a_step = 0,
                         .count = 1,
                         .first = static_cast<std::int32_t>(few_.meets.size()),
                         .rows = static_cast<std::int32_t>(met_.size())});
    few_.meets.insert(few_.meets.end(), met_.begin(), met_.end());
    open_ = true;
  }

  FewRows& few_;
  std::vector<channels::Meets> met_;
  std::int64_t last_a_ = 0, last_b_ = 0;
  bool open_ = false;
};

bool has_ascending_terms(const GemmProblem& p) {
  std::int64_t begin = 0;
  for (const std::int64_t end : p.leaf_ends) {
    for (std::int64_t k = begin + 1; k < end; ++k) {
      if (p.b.k[at(k)] <= p.b.k[at(k - 1)]) return false;
    }
    begin = end;
  }
  return true;
}

FewRows few_rows(std::span<const GemmProblem> problems) {
  FewRows few;
  Runs runs(few);
  const auto grains = static_cast<std::int64_t>(problems[0].leaf_ends.size());
  std::int64_t waiting = 0;
  for (std::int64_t grain = 0; grain < grains; ++grain) {
    std::vector<Runs::Cursor> rows;
    std::int32_t row = 0;
    for (const GemmProblem& p : problems) {
      const std::int64_t begin = grain == 0 ? 0 : p.leaf_ends[at(grain - 1)];
      for (const std::int64_t outer : p.a.outer)
        rows.push_back({&p, outer + p.a.batch[0], row++, begin, p.leaf_ends[at(grain)]});
    }
    few.rows = row;
    runs.add_grain(std::move(rows));
    // Works like a binary counter. At the end all waiting nodes are added, the last ones first.
    few.waiting = std::max(few.waiting, waiting + 1);
    std::int32_t merges = 0;
    for (std::int64_t bits = grain; (bits & 1) != 0; bits >>= 1) ++merges;
    if (grain + 1 == grains) merges = static_cast<std::int32_t>(waiting);
    waiting += 1 - merges;
    few.grains.push_back({.end = few.runs.size(), .merges = merges});
  }
  return few;
}

}  // namespace

struct ChannelProducts::State {
  std::int64_t channels = 0;
  std::int64_t flops = 0;
  int num_parts = 1;
  std::vector<ManyRows> many;  // none: there are few rows
  FewRows few;
  Offsets c_rows, c_channels;  // of few rows

  bool plan(std::span<const GemmProblem> problems);
};

bool ChannelProducts::State::plan(std::span<const GemmProblem> problems) {
  std::int64_t rows = 0, most_terms = 0;
  bool is_ascending = true, is_alike = true, is_dense = true;
  for (const GemmProblem& p : problems) {
    if (!is_by_channel(p, at(channels))) return false;
    const std::int64_t terms = std::ssize(p.a.k), of_problem = std::ssize(p.a.outer);
    rows += of_problem;
    most_terms = std::max(most_terms, terms);
    flops += 2 * channels * of_problem * terms;
    is_dense = is_dense && are_adjacent(p.c_batch);
    is_ascending = is_ascending && has_ascending_terms(p);
    is_alike = is_alike && p.c_batch == problems[0].c_batch &&
               p.leaf_ends.size() == problems[0].leaf_ends.size();
  }
  if (rows == 0 || channels < kFewestChannels) return false;
  if (most_terms <= kMostTerms && is_dense) {
    for (const GemmProblem& p : problems) {
      auto of_problem = many_rows(p);
      if (!of_problem) return false;
      many.push_back(std::move(*of_problem));
    }
    return true;
  }
  if (rows > kFewRows || !is_ascending || !is_alike) return false;
  few = few_rows(problems);
  c_channels = problems[0].c_batch;
  for (const GemmProblem& p : problems)
    c_rows.insert(c_rows.end(), p.c_rows.begin(), p.c_rows.end());
  return true;
}

std::optional<ChannelProducts> ChannelProducts::of(std::span<const GemmProblem> problems,
                                                   int num_workers) {
  if (problems.empty()) return std::nullopt;
  auto state = std::make_unique<State>();
  state->channels = std::ssize(problems[0].a.batch);
  if (!state->plan(problems)) return std::nullopt;
  // If there are few rows, parts are vectors of channels.
  const std::int64_t most =
      state->many.empty() ? gemm::ceil_div(state->channels, 16) : state->flops;
  state->num_parts = num_parts_for(num_workers, state->flops, kPartFlops, most);
  return ChannelProducts(std::move(state));
}

ChannelProducts::ChannelProducts(std::unique_ptr<const State> state) : state_(std::move(state)) {}
ChannelProducts::~ChannelProducts() = default;
ChannelProducts::ChannelProducts(ChannelProducts&&) noexcept = default;
ChannelProducts& ChannelProducts::operator=(ChannelProducts&&) noexcept = default;

std::int64_t ChannelProducts::flops() const { return state_->flops; }
int ChannelProducts::num_parts() const { return state_->num_parts; }

std::int64_t ChannelProducts::scratch_bytes() const {
  const State& s = *state_;
  if (!s.many.empty()) return 0;
  const std::int64_t vectors = gemm::ceil_div(s.channels, 16);
  const std::int64_t most = gemm::ceil_div(vectors, s.num_parts) * 16;
  return s.few.waiting * s.few.rows * most * static_cast<std::int64_t>(sizeof(float));
}

void ChannelProducts::run(const float* a, const float* b, float* c, int part) const {
  const State& s = *state_;
  for (const ManyRows& many : s.many) {
    const std::int64_t rows = std::ssize(many.a);
    channels::run_many(many, s.channels, rows * part / s.num_parts, rows * (part + 1) / s.num_parts,
                       a, b, c);
  }
  if (!s.many.empty()) return;
  const std::int64_t vectors = gemm::ceil_div(s.channels, 16);
  const std::int64_t begin = vectors * part / s.num_parts * 16;
  const std::int64_t end = std::min(vectors * (part + 1) / s.num_parts * 16, s.channels);
  float* nodes = t_scratch.reserve(s.few.waiting * s.few.rows * (end - begin));
  channels::run_few(s.few, begin, end, a, b, nodes);
  for (std::int64_t row = 0; row < s.few.rows; ++row) {
    for (std::int64_t i = begin; i < end; ++i)
      c[s.c_rows[at(row)] + s.c_channels[at(i)]] = nodes[row * (end - begin) + i - begin];
  }
}

}  // namespace tessera::kernels
#endif
