#include "compile/host/kernels/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <type_traits>

#include "compile/host/kernels/any_order/any_order.h"
#include "compile/host/kernels/any_order/loops.h"
#include "compile/host/kernels/pairwise.h"
#include "compile/host/kernels/parts.h"
#include "compile/host/kernels/reduce_columns.h"
#include "compile/host/kernels/reduce_internal.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::kernels {

std::int64_t kept_offset(const ReduceProblem& p, std::int64_t result) {
  std::int64_t offset = 0;
  for (std::size_t d = p.kept_extents.size(); d-- > 0;) {
    offset += result % p.kept_extents[d] * p.kept_strides[d];
    result /= p.kept_extents[d];
  }
  return offset;
}

void merge_dims(std::vector<std::int64_t>& extents, std::vector<std::int64_t>& strides) {
  std::vector<std::int64_t> merged_extents, merged_strides;
  for (std::size_t d = 0; d < extents.size(); ++d) {
    if (extents[d] == 1) continue;
    if (!merged_extents.empty() && merged_strides.back() == strides[d] * extents[d]) {
      merged_extents.back() *= extents[d];
      merged_strides.back() = strides[d];
    } else {
      merged_extents.push_back(extents[d]);
      merged_strides.push_back(strides[d]);
    }
  }
  extents = std::move(merged_extents);
  strides = std::move(merged_strides);
}

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr std::int64_t kMaxLevels = 64;
constexpr std::int64_t kMinPartTerms = 32 * 1024;
constexpr std::int64_t kWaitingLeaves = 2048;

/// Visits the grains of a problem: visit(offset of the first term, extents of the grain).
template <typename Visit>
void for_each_leaf(const ReduceProblem& p, Visit visit) {
  const std::size_t rank = p.cuts.size();
  for (const auto& cuts : p.cuts) {
    if (cuts.size() < 2) return;
  }
  Grid grid(rank);
  std::vector<std::int64_t> sizes(rank);
  do {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      const auto leaf = static_cast<std::size_t>(grid.index()[d]);
      offset += p.cuts[d][leaf] * p.reduced_strides[d];
      sizes[d] = p.cuts[d][leaf + 1] - p.cuts[d][leaf];
    }
    visit(offset, sizes);
  } while (grid.next(
      rank, [&](std::size_t d) { return static_cast<std::int64_t>(p.cuts[d].size()) - 1; }));
}

/// The tree of base/leaf_tree.h, without memory allocation.
template <typename T>
class SmallTree {
 public:
  void push(T value) {
    ++count_;
    for (std::int64_t n = count_; n % 2 == 0; n /= 2) value = stack_[--depth_] + value;
    stack_[depth_++] = value;
  }
  T finish() {
    if (depth_ == 0) return T{};
    T sum = stack_[--depth_];
    while (depth_ > 0) sum = stack_[--depth_] + sum;
    return sum;
  }

 private:
  T stack_[kMaxLevels];
  std::int64_t depth_ = 0;
  std::int64_t count_ = 0;
};

template <typename T>
ArithmeticType<T> sum_leaf(const ReduceProblem& p, const T* from,
                           const std::vector<std::int64_t>& sizes) {
  const std::int64_t length = sizes.empty() ? 1 : sizes.back();
  const std::int64_t stride = sizes.empty() ? 1 : p.reduced_strides.back();
  if (!p.lanes16) {
    ArithmeticType<T> sum{};
    for_each_run(p, sizes, [&](std::int64_t offset) {
      for (std::int64_t i = 0; i < length; ++i) {
        sum += static_cast<ArithmeticType<T>>(from[offset + i * stride]);
      }
    });
    return sum;
  }
  ArithmeticType<T> lanes[16] = {};
  for_each_run(p, sizes, [&](std::int64_t offset) {
    for (std::int64_t i = 0; i < length; ++i) {
      lanes[i % 16] += static_cast<ArithmeticType<T>>(from[offset + i * stride]);
    }
  });
  for (std::size_t half = 8; half >= 1; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

template <typename T>
T sum_all(const ReduceProblem& p, const T* from) {
  SmallTree<ArithmeticType<T>> tree;
  for_each_leaf(p, [&](std::int64_t offset, const std::vector<std::int64_t>& sizes) {
    tree.push(sum_leaf(p, from + offset, sizes));
  });
  return static_cast<T>(tree.finish());
}

template <typename T>
T extreme_all(const ReduceProblem& p, const T* from) {
  T best = identity_of<T>(p.kind);
  const std::int64_t length = p.reduced_extents.empty() ? 1 : p.reduced_extents.back();
  const std::int64_t stride = p.reduced_strides.empty() ? 1 : p.reduced_strides.back();
  for_each_run(p, p.reduced_extents, [&](std::int64_t offset) {
    for (std::int64_t i = 0; i < length; ++i) {
      best = better(p.kind, best, from[offset + i * stride]);
    }
  });
  return best;
}

template <typename T>
void run_each(const ReduceProblem& p, const T* in, T* out, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const T* from = in + kept_offset(p, i);
    out[i] = p.kind == ReduceKind::sum ? sum_all(p, from) : extreme_all(p, from);
  }
}

bool has_short_sums(const ReduceProblem& p) {
  const std::int64_t terms = num_elements(p.reduced_extents);
  return p.kind == ReduceKind::sum && p.dtype == DType::f64 && !p.reduced_extents.empty() &&
         terms > 0 && terms <= kMostShortTerms;
}

/// Whether a sum has adjacent terms, in rows that the vector loops can add up.
bool is_rowwise(const ReduceProblem& p) {
  const bool is_taken = p.dtype == DType::f32 || (p.dtype == DType::f64 && !has_short_sums(p));
  return p.kind == ReduceKind::sum && is_taken && p.lanes16 && !p.reduced_strides.empty() &&
         p.reduced_strides.back() == 1;
}

/// The grains of a row. Grains whose runs have the same offsets share these in the table.
RowSum leaf_runs(const ReduceProblem& p) {
  RowSum sum;
  std::map<std::vector<std::int64_t>, std::int64_t> first_runs;  // by the extents before the last
  for_each_leaf(p, [&](std::int64_t offset, const std::vector<std::int64_t>& sizes) {
    LeafRuns leaf{.offset = offset, .runs = 0, .length = sizes.back()};
    if (num_elements(sizes) > 0) {
      const std::vector<std::int64_t> outer(sizes.begin(), sizes.end() - 1);
      const auto [known, is_new] = first_runs.try_emplace(outer, std::ssize(sum.run_offsets));
      if (is_new) for_each_run(p, sizes, [&](std::int64_t run) { sum.run_offsets.push_back(run); });
      leaf.runs = num_elements(outer);
      leaf.first_run = known->second;
    }
    sum.leaves.push_back(leaf);
  });
  return sum;
}

/// A term of a row, or a sum that takes its place. `number` is -1 if nothing was added.
struct Term {
  std::int32_t number = -1;
  std::vector<RowAddition>* additions = nullptr;
};

Term operator+(const Term& a, const Term& b) {
  if (a.number < 0 || b.number < 0) return a.number < 0 ? b : a;
  a.additions->push_back({.to = a.number, .from = b.number});
  return a;
}

/// The sum of a row with these grains, or an empty one if the row is not short.
ShortRowSum short_row_sum(std::span<const LeafRuns> leaves) {
  ShortRowSum sum;
  SmallTree<Term> tree;
  for (const LeafRuns& leaf : leaves) {
    const std::int64_t end = leaf.offset + leaf.length;
    if (leaf.length > 0 && (leaf.runs > 1 || end > kMostShortTerms)) return {};
    Term lanes[16];
    for (std::int64_t i = 0; i < leaf.length && leaf.runs == 1; ++i) {
      Term& lane = lanes[i % 16];
      lane = lane + Term{static_cast<std::int32_t>(leaf.offset + i), &sum.additions};
      sum.length = std::max(sum.length, end);
    }
    for (std::size_t half = 8; half >= 1; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
    }
    tree.push(lanes[0]);
  }
  if (sum.length > 0) sum.result = tree.finish().number;
  return sum;
}

/// The sum of few terms, wherever they lie: term i is the i-th in row-major order.
ShortRowSum short_sum(ReduceProblem p) {
  ShortRowSum sum{.length = num_elements(p.reduced_extents), .additions = {}};
  std::int64_t stride = 1;
  for (std::size_t d = p.reduced_extents.size(); d-- > 0; stride *= p.reduced_extents[d])
    p.reduced_strides[d] = stride;
  SmallTree<Term> tree;
  for_each_leaf(p, [&](std::int64_t first, const std::vector<std::int64_t>& sizes) {
    Term lanes[16];
    for_each_run(p, sizes, [&](std::int64_t run) {
      for (std::int64_t i = 0; i < sizes.back(); ++i) {
        Term& lane = lanes[p.lanes16 ? i % 16 : 0];
        lane = lane + Term{static_cast<std::int32_t>(first + run + i), &sum.additions};
      }
    });
    for (std::size_t half = 8; half >= 1; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
    }
    tree.push(lanes[0]);
  });
  sum.result = tree.finish().number;
  return sum;
}

/// The offsets of the terms of a result.
std::vector<std::int64_t> term_offsets(const ReduceProblem& p) {
  std::vector<std::int64_t> offsets;
  const std::int64_t stride = p.reduced_strides.back();
  for_each_run(p, p.reduced_extents, [&](std::int64_t run) {
    for (std::int64_t i = 0; i < p.reduced_extents.back(); ++i) offsets.push_back(run + i * stride);
  });
  return offsets;
}

/// Sums up to kResults results at once, in a block that has a line for each term of a result.
void run_short(const ReduceProblem& p, const ShortRowSum& sum, const double* in, double* out,
               std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kResults = 32;
  alignas(64) double lines[kMostShortTerms * kResults] = {};
  const std::vector<std::int64_t> offsets = term_offsets(p);
  const std::int64_t last = p.kept_extents.empty() ? 1 : p.kept_extents.back();
  const std::int64_t stride = p.kept_strides.empty() ? 0 : p.kept_strides.back();
  while (begin < end) {
    const std::int64_t count = std::min({kResults, end - begin, last - begin % last});
    const double* const from = in + kept_offset(p, begin);
    double* line = lines;
    for (const std::int64_t offset : offsets) {
      for (std::int64_t r = 0; r < count; ++r) line[r] = from[offset + r * stride];
      line += kResults;
    }
    for (const RowAddition& add : sum.additions) {
      double* const to = lines + add.to * kResults;
      const double* const other = lines + add.from * kResults;
      for (std::int64_t r = 0; r < kResults; ++r) to[r] += other[r];
    }
    for (std::int64_t r = 0; r < count; ++r)
      out[begin + r] = lines[sum.result * kResults + r] + 0.0;
    begin += count;
  }
}

/// Collects the sums of grains, so that the trees of many rows can be added up at once.
template <typename T>
void sum_trees(std::span<const LeafRuns> leaves, const std::int64_t* run_offsets,
               const ReduceRows<T>& rows, T* to) {
  const auto num_leaves = static_cast<std::int64_t>(leaves.size());
  if (num_leaves <= 1) {
    if (num_leaves == 1) return sum_leaves(rows, leaves, run_offsets, to);
    std::fill_n(to, rows.rows, T{0});
    return;
  }
  thread_local std::vector<T> waiting;
  const std::int64_t step = std::max<std::int64_t>(kWaitingLeaves / num_leaves, 1);
  waiting.resize(static_cast<std::size_t>(step * num_leaves));
  for (std::int64_t row = 0; row < rows.rows; row += step) {
    const ReduceRows<T> some = {.from = rows.from + row * rows.row_stride,
                                .rows = std::min(step, rows.rows - row),
                                .row_stride = rows.row_stride};
    sum_leaves(some, leaves, run_offsets, waiting.data());
    if (std::has_single_bit(leaves.size())) {
      add_leaf_pairs(waiting.data(), some.rows, num_leaves, to + row);
      continue;
    }
    for (std::int64_t i = 0; i < some.rows; ++i) {
      SmallTree<T> tree;
      for (std::int64_t leaf = 0; leaf < num_leaves; ++leaf) {
        tree.push(waiting[static_cast<std::size_t>(i * num_leaves + leaf)]);
      }
      to[row + i] = tree.finish();
    }
  }
}

template <typename T>
void sum_rows(const RowSum& sum, const ReduceRows<T>& rows, T* to) {
  if constexpr (std::is_same_v<T, float>) {
    // With few rows, a block would be almost empty.
    constexpr std::int64_t kManyRows = 16;
    const bool has_many = rows.rows >= kManyRows;
    if (has_many && sum.terms_of_eighth > 0 && sum_eighths(rows, sum.terms_of_eighth, to)) return;
    if (has_many && sum.of_short.length > 0) return sum_short_rows(rows, sum.of_short, to);
  }
  sum_trees(std::span<const LeafRuns>(sum.leaves), sum.run_offsets.data(), rows, to);
}

/// Sums all neighbouring rows along the last kept dimension in one call.
template <typename T>
void run_rows(const ReduceProblem& p, const RowSum& sum, const T* in, T* out, std::int64_t begin,
              std::int64_t end) {
  const std::int64_t last = p.kept_extents.empty() ? 1 : p.kept_extents.back();
  while (begin < end) {
    const ReduceRows<T> rows = {.from = in + kept_offset(p, begin),
                                .rows = std::min(end - begin, last - begin % last),
                                .row_stride = p.kept_strides.empty() ? 0 : p.kept_strides.back()};
    sum_rows(sum, rows, out + begin);
    begin += rows.rows;
  }
}

}  // namespace

void RowSum::find_forms() {
  of_short = short_row_sum(leaves);
  if (leaves.size() != 8) return;
  const std::int64_t terms = leaves[0].length;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const LeafRuns& leaf = leaves[i];
    const bool is_next = leaf.offset == static_cast<std::int64_t>(i) * terms;
    if (!is_next || leaf.runs != 1 || leaf.length != terms) return;
  }
  terms_of_eighth = terms;
}

RowReducer::RowReducer(ReduceKind kind, const std::vector<std::int64_t>& cuts)
    : kind_(kind), length_(cuts.back()) {
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    sum_.leaves.push_back({.offset = cuts[i], .length = cuts[i + 1] - cuts[i]});
  }
  sum_.find_forms();
}

void RowReducer::run(const float* from, std::int64_t rows, float* to) const {
  if (kind_ == ReduceKind::sum) {
    return sum_rows<float>(sum_, {.from = from, .rows = rows, .row_stride = length_}, to);
  }
  std::fill_n(to, rows, identity_of<float>(kind_));
  join_rows({kind_, DType::f32},
            {.from = from, .count = rows, .stride = length_, .length = length_}, to);
}

ReducePlan::ReducePlan(ReduceProblem problem, int num_workers, const CacheSizes& caches)
    : problem_(std::move(problem)), num_outputs_(num_elements(problem_.kept_extents)) {
  if (AnyOrder::takes(problem_)) {
    any_order_ = std::make_shared<AnyOrder>(problem_, num_workers);
    num_parts_ = any_order_->num_parts();
    return;
  }
  if (ColumnSums::takes(problem_)) {
    columns_ = std::make_shared<ColumnSums>(problem_, num_workers, caches);
    num_parts_ = columns_->num_parts();
    return;
  }
  const std::int64_t terms = num_outputs_ * num_elements(problem_.reduced_extents);
  if (has_short_sums(problem_)) {
    merge_dims(problem_.kept_extents, problem_.kept_strides);
    rows_.of_short = short_sum(problem_);
  }
  num_parts_ = num_parts_for(num_workers, terms, kMinPartTerms, num_outputs_);
  if (!is_rowwise(problem_)) return;
  rows_ = leaf_runs(problem_);
  rows_.find_forms();
  if (num_outputs_ > 0 && num_outputs_ < num_workers)
    share_results(num_parts_for(num_workers, terms, kMinPartTerms, terms));
}

/// Each part sums grains of one result. They form a subtree, since their number is a power of two.
void ReducePlan::share_results(std::int64_t most_parts) {
  const std::int64_t num_leaves = std::ssize(rows_.leaves);
  const std::int64_t pieces = most_parts / num_outputs_;
  if (pieces <= 1 || num_leaves <= 1) return;
  const auto least = static_cast<std::uint64_t>((num_leaves + pieces - 1) / pieces);
  leaves_of_part_ = static_cast<std::int64_t>(std::bit_ceil(least));
  const std::int64_t of_each = (num_leaves + leaves_of_part_ - 1) / leaves_of_part_;
  num_parts_ = static_cast<int>(num_outputs_ * of_each);
}

std::int64_t ReducePlan::scratch_bytes() const {
  if (any_order_ != nullptr) return any_order_->scratch_bytes();
  if (leaves_of_part_ > 0)
    return num_parts_ * static_cast<std::int64_t>(size_bytes(problem_.dtype));
  return columns_ == nullptr ? 0 : columns_->scratch_bytes();
}

void ReducePlan::join(void* scratch, void* output) const {
  if (any_order_ != nullptr) {
    return any_order_->join(static_cast<std::byte*>(scratch), static_cast<std::byte*>(output));
  }
  if (columns_ != nullptr) return columns_->join(scratch, output);
  const auto join_as = [&](auto zero) {
    using T = decltype(zero);
    const T* sum = static_cast<const T*>(scratch);
    for (std::int64_t i = 0; i < num_outputs_; ++i) {
      SmallTree<T> tree;
      for (std::int64_t part = 0; part < parts_of_each(); ++part) tree.push(*sum++);
      static_cast<T*>(output)[i] = tree.finish();
    }
  };
  return problem_.dtype == DType::f64 ? join_as(double{}) : join_as(float{});
}

template <typename T>
void ReducePlan::sum_part(const T* input, T* scratch, int part) const {
  const std::int64_t begin = part % parts_of_each() * leaves_of_part_;
  const std::int64_t end = std::min(begin + leaves_of_part_, std::ssize(rows_.leaves));
  const auto leaves = std::span(rows_.leaves).subspan(at(begin), at(end - begin));
  const T* const from = input + kept_offset(problem_, part / parts_of_each());
  sum_trees<T>(leaves, rows_.run_offsets.data(), {.from = from, .rows = 1, .row_stride = 0},
               scratch + part);
}

void ReducePlan::run(const void* input, void* output, void* scratch, int part) const {
  if (any_order_ != nullptr) {
    return any_order_->run(static_cast<const std::byte*>(input), static_cast<std::byte*>(output),
                           static_cast<std::byte*>(scratch), part);
  }
  if (columns_ != nullptr) {
    return columns_->run(input, output, scratch, part);
  }
  const ReduceProblem& p = problem_;
  const std::int64_t begin = num_outputs_ * part / num_parts_;
  const std::int64_t end = num_outputs_ * (part + 1) / num_parts_;
  auto each = [&](auto tag) {
    using T = decltype(tag);
    run_each(p, static_cast<const T*>(input), static_cast<T*>(output), begin, end);
  };
  if (is_rowwise(p)) {
    const auto run_as = [&](auto zero) {
      using T = decltype(zero);
      if (leaves_of_part_ > 0)
        return sum_part(static_cast<const T*>(input), static_cast<T*>(scratch), part);
      run_rows(p, rows_, static_cast<const T*>(input), static_cast<T*>(output), begin, end);
    };
    return p.dtype == DType::f64 ? run_as(double{}) : run_as(float{});
  }
  if (has_short_sums(p)) {
    return run_short(p, rows_.of_short, static_cast<const double*>(input),
                     static_cast<double*>(output), begin, end);
  }
  with_element(p.dtype, each);
}

}  // namespace tessera::kernels
