#include "compile/host/kernels/boxes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>

#include <tessera/error.h>

#include "compile/host/kernels/pairwise.h"
#include "compile/host/kernels/parts.h"
#include "compile/host/kernels/transpose.h"

namespace tessera::kernels {

namespace {

constexpr std::int64_t kMinPartElements = 32 * 1024;
constexpr std::int64_t kBlock = 1024;  // elements that are combined at once; the tree stays in L1

/// Visits runs along the last dimension: visit(index of the run in all dimensions but the last).
template <typename Visit>
void for_each_run(const Shape& extents, Visit visit) {
  if (num_elements(extents) == 0) return;
  const std::size_t outer = extents.empty() ? 0 : extents.size() - 1;
  std::vector<std::int64_t> index(extents.size(), 0);
  while (true) {
    visit(index);
    std::size_t d = outer;
    while (d-- > 0) {
      if (++index[d] < extents[d]) break;
      index[d] = 0;
    }
    if (d == static_cast<std::size_t>(-1)) return;
  }
}

std::int64_t dot(const std::vector<std::int64_t>& index, const std::vector<std::int64_t>& strides) {
  std::int64_t sum = 0;
  for (std::size_t d = 0; d < index.size(); ++d) sum += index[d] * strides[d];
  return sum;
}

/// Calls visit(offset in the source, offset in the target) for every index.
template <typename Dim, typename Visit>
void for_each_index(std::span<const Dim> dims, std::int64_t from, std::int64_t to, Visit visit) {
  if (dims.empty()) return visit(from, to);
  for (std::int64_t i = 0; i < dims[0].extent; ++i) {
    if (dims.size() == 1) {
      visit(from, to);
    } else {
      for_each_index(dims.subspan(1), from, to, visit);
    }
    from += dims[0].from;
    to += dims[0].to;
  }
}

/// Copies elements that are `from_stride` apart to places that are `to_stride` apart. T only needs
/// to have the size of the elements.
template <typename T>
void copy_run(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride,
              std::int64_t count) {
  if (count == 1) {
    *to = *from;
  } else if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

}  // namespace

/// The dimensions in the order of the target's memory, outermost first. Dimensions that are
/// contiguous in both source and target are merged.
std::vector<BoxCopy::Dim> BoxCopy::dims_of(const Shape& extents,
                                           const std::vector<std::int64_t>& from,
                                           const std::vector<std::int64_t>& to) {
  std::vector<Dim> dims;
  for (std::size_t d = 0; d < extents.size(); ++d) {
    if (extents[d] != 1) dims.push_back({extents[d], from[d], to[d]});
  }
  const auto is_before = [](const Dim& a, const Dim& b) { return std::abs(a.to) > std::abs(b.to); };
  std::stable_sort(dims.begin(), dims.end(), is_before);
  std::size_t count = 0;
  for (const Dim& dim : dims) {
    Dim& last = dims[count == 0 ? 0 : count - 1];
    if (count > 0 && last.from == dim.from * dim.extent && last.to == dim.to * dim.extent) {
      last = {last.extent * dim.extent, dim.from, dim.to};
    } else {
      dims[count++] = dim;
    }
  }
  dims.resize(count);
  return dims;
}

BoxCopy::BoxCopy(const std::vector<std::int64_t>& from_strides,
                 const std::vector<std::int64_t>& to_strides, const Shape& extents,
                 std::size_t element_bytes)
    : is_empty_(num_elements(extents) == 0),
      element_bytes_(element_bytes),
      outer_(dims_of(extents, from_strides, to_strides)),
      last_{1, 1, 1} {
  require(element_bytes == 1 || element_bytes == 2 || element_bytes == 4 || element_bytes == 8,
          "elements have 1, 2, 4 or 8 bytes");
  if (outer_.empty()) return;
  last_ = outer_.back();
  outer_.pop_back();
  const auto line = std::find_if(outer_.begin(), outer_.end(), [&](const Dim& dim) {
    return last_.from != 1 && last_.to == 1 && dim.from == 1;
  });
  if (line == outer_.end()) return;
  line_ = *line;
  outer_.erase(line);
}

template <typename T>
void BoxCopy::run_as(const T* from, T* to) const {
  for_each_index(std::span(outer_), 0, 0, [&](std::int64_t source, std::int64_t target) {
    if (!line_) return copy_run(from + source, last_.from, to + target, last_.to, last_.extent);
    transpose({.rows = line_->extent,
               .columns = last_.extent,
               .from_stride = last_.from,
               .to_stride = line_->to},
              from + source, to + target);
  });
}

void BoxCopy::run(const std::byte* from, std::byte* to) const {
  if (is_empty_) return;
  const auto copy = [&](auto tag) {
    using T = decltype(tag);
    run_as(reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to));
  };
  if (element_bytes_ == 8) return copy(std::uint64_t{});
  if (element_bytes_ == 4) return copy(std::uint32_t{});
  if (element_bytes_ == 2) return copy(std::uint16_t{});
  copy(std::uint8_t{});
}

void copy_box(const std::byte* from, const std::vector<std::int64_t>& from_strides, std::byte* to,
              const std::vector<std::int64_t>& to_strides, const Shape& extents,
              std::size_t element_bytes) {
  BoxCopy(from_strides, to_strides, extents, element_bytes).run(from, to);
}

ReduceKind combine_kind(std::string_view reduction) {
  if (reduction == "sum") return ReduceKind::sum;
  if (reduction == "max") return ReduceKind::max;
  if (reduction == "min") return ReduceKind::min;
  if (reduction == "and") return ReduceKind::all;
  if (reduction == "or") return ReduceKind::any;
  require(reduction == "bit_or", "a reduction has a known name");
  return ReduceKind::bits;
}

namespace {

template <typename T>
void combine_run(ReduceKind kind, T* a, const T* b, std::int64_t count) {
  if constexpr (!detail::kIsHalf<T>) {
    if (kind == ReduceKind::sum) return add_run(a, b, count);
  }
  if constexpr (std::is_unsigned_v<T>) {
    if (kind == ReduceKind::bits) {
      for (std::int64_t i = 0; i < count; ++i) a[i] |= b[i];
      return;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) a[i] = better(kind, a[i], b[i]);
}

/// Counts the nodes of the tree over `leaves` leaves that each source completes. `next` is the
/// first source of these leaves. On return, it is the first source after them.
void count_joins(const std::vector<CombineProblem::Source>& sources, std::int64_t leaves,
                 std::size_t& next, std::vector<int>& joins) {
  require(next < sources.size() && sources[next].num_leaves <= leaves,
          "every source has the leaves of a subtree");
  if (sources[next].num_leaves == leaves) {
    ++next;
    return;
  }
  const auto before =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(leaves - 1)));
  count_joins(sources, before, next, joins);
  count_joins(sources, leaves - before, next, joins);
  ++joins[next - 1];
}

std::vector<int> joins_of(const CombineProblem& problem) {
  std::int64_t leaves = 0;
  for (const CombineProblem::Source& source : problem.sources) leaves += source.num_leaves;
  std::vector<int> joins(problem.sources.size(), 0);
  std::size_t next = 0;
  count_joins(problem.sources, leaves, next, joins);
  return joins;
}

/// Reduces up to kBlock elements of one run of every source, by the summation tree.
template <typename T>
void combine_block(ReduceKind kind, const std::vector<int>& joins,
                   std::span<const T* const> sources, const std::vector<std::int64_t>& steps,
                   std::int64_t count, T* result) {
  thread_local std::vector<T> stack;
  stack.resize(sources.size() * kBlock);
  std::int64_t depth = 0;
  auto row = [&](std::int64_t level) {
    return level == 0 ? result : stack.data() + (level - 1) * kBlock;
  };
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const T* node = sources[s];
    // A contiguous source that is combined at once need not be copied first.
    if (joins[s] == 0 || steps[s] != 1) {
      copy_run(node, steps[s], row(depth), 1, count);
      node = row(depth);
    }
    ++depth;
    for (int join = 0; join < joins[s]; ++join, --depth) {
      combine_run(kind, row(depth - 2), join == 0 ? node : row(depth - 1), count);
    }
  }
}

template <typename T>
void combine(const CombineProblem& p, const std::vector<int>& joins,
             std::span<std::byte* const> buffers, T* result, std::int64_t first_run,
             std::int64_t end_run) {
  const std::int64_t length = p.extents.empty() ? 1 : p.extents.back();
  std::vector<std::int64_t> steps;
  for (const CombineProblem::Source& source : p.sources) {
    steps.push_back(source.strides.empty() ? 1 : source.strides.back());
  }
  std::vector<const T*> at(p.sources.size());
  std::int64_t run = 0;
  for_each_run(p.extents, [&](const std::vector<std::int64_t>& index) {
    const std::int64_t number = run++;
    if (number < first_run || number >= end_run) return;
    for (std::int64_t begin = 0; begin < length; begin += kBlock) {
      for (std::size_t s = 0; s < at.size(); ++s) {
        at[s] = reinterpret_cast<const T*>(buffers[s]) + p.sources[s].offset +
                dot(index, p.sources[s].strides) + begin * steps[s];
      }
      combine_block<T>(p.kind, joins, at, steps, std::min(kBlock, length - begin),
                       result + number * length + begin);
    }
  });
}

/// Merges the dimensions over which all sources are contiguous, and cuts long runs, so that runs
/// divide well into parts.
void normalise(CombineProblem& p) {
  Shape extents;
  std::vector<std::vector<std::int64_t>> strides(p.sources.size());
  for (std::size_t d = 0; d < p.extents.size(); ++d) {
    bool follows = !extents.empty();
    for (std::size_t s = 0; follows && s < p.sources.size(); ++s) {
      follows = strides[s].back() == p.sources[s].strides[d] * p.extents[d];
    }
    if (follows) {
      extents.back() *= p.extents[d];
    } else {
      extents.push_back(p.extents[d]);
    }
    for (std::size_t s = 0; s < p.sources.size(); ++s) {
      if (follows) {
        strides[s].back() = p.sources[s].strides[d];
      } else {
        strides[s].push_back(p.sources[s].strides[d]);
      }
    }
  }
  if (!extents.empty() && extents.back() > kMinPartElements &&
      extents.back() % kMinPartElements == 0) {
    extents.insert(extents.end() - 1, extents.back() / kMinPartElements);
    extents.back() = kMinPartElements;
    for (auto& list : strides) list.insert(list.end() - 1, list.back() * kMinPartElements);
  }
  p.extents = std::move(extents);
  for (std::size_t s = 0; s < p.sources.size(); ++s) p.sources[s].strides = std::move(strides[s]);
}

std::int64_t num_runs(const Shape& extents) {
  const std::int64_t count = num_elements(extents);
  return extents.empty() || count == 0 ? 1 : count / extents.back();
}

}  // namespace

CombinePlan::CombinePlan(CombineProblem problem, int num_workers)
    : problem_(std::move(problem)), joins_(joins_of(problem_)) {
  normalise(problem_);
  const std::int64_t work =
      num_elements(problem_.extents) * static_cast<std::int64_t>(problem_.sources.size());
  num_parts_ = num_parts_for(num_workers, work, kMinPartElements, num_runs(problem_.extents));
}

void CombinePlan::run(std::span<std::byte* const> sources, std::byte* result, int part) const {
  const std::int64_t runs = num_runs(problem_.extents);
  const std::int64_t first = runs * part / num_parts_;
  const std::int64_t end = runs * (part + 1) / num_parts_;
  auto with = [&](auto tag) {
    using T = decltype(tag);
    combine<T>(problem_, joins_, sources, reinterpret_cast<T*>(result), first, end);
  };
  if (problem_.kind == ReduceKind::bits) {
    // Works on unsigned integers, whatever the dtype: adding floats would change signaling NaNs and
    // the sign of zero.
    const std::size_t bytes = size_bytes(problem_.dtype);
    if (bytes == 8) return with(std::uint64_t{});
    if (bytes == 4) return with(std::uint32_t{});
    if (bytes == 2) return with(std::uint16_t{});
    return with(std::uint8_t{});
  }
  require(!is_half(problem_.dtype) || problem_.kind != ReduceKind::sum,
          "sums of f16 and bf16 are f32");
  with_element(problem_.dtype, with);
}

}  // namespace tessera::kernels
