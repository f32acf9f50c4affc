#include "compile/host/kernels/any_order/argmax.h"

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/any_order/argmax.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <algorithm>
#include <hwy/highway.h>
#include <type_traits>

#include "compile/host/kernels/with_type.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kMostColumns = 256;
/// Neighbouring results are searched at least this many columns at a time. If there are fewer
/// results, several positions of each are searched at once.
constexpr std::int64_t kFewColumns = 64;

/// The best element so far of each of some columns, and the step at which it was found. Steps have
/// the size of elements, so that compilers can vectorise the loops.
template <class T, bool kIsMin>
class BestOfColumns {
 public:
  using Step = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;

  void start(const T* from, std::int64_t columns) {
    std::copy_n(from, columns, best_);
    std::fill_n(steps_, columns, Step{0});
  }
  void add(const T* from, std::int64_t columns, std::int64_t step) {
    const auto now = static_cast<Step>(step);
    if (columns == kMostColumns) return add_columns(from, kMostColumns, now);
    if (columns == kFewColumns) return add_columns(from, kFewColumns, now);
    add_columns(from, columns, now);
  }
  T best(std::int64_t column) const { return best_[column]; }
  std::int64_t step(std::int64_t column) const { return steps_[column]; }

  /// Whether x takes the place of y, which has a lower index.
  static HWY_INLINE bool is_better(T x, T y) {
    const bool is_beyond = kIsMin ? x < y : x > y;
    if constexpr (std::is_integral_v<T>) return is_beyond;
    return static_cast<int>(y == y) & (static_cast<int>(is_beyond) | static_cast<int>(x != x));
  }

 private:
  HWY_INLINE void add_columns(const T* HWY_RESTRICT from, std::int64_t columns, Step step) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const bool better = is_better(from[c], best_[c]);
      best_[c] = better ? from[c] : best_[c];
      steps_[c] = better ? step : steps_[c];
    }
  }

  T best_[kMostColumns];
  Step steps_[kMostColumns];
};

/// An element and its index along the dimension that is searched.
template <class T>
struct Found {
  T value;
  std::int64_t index;
};

/// Finds the results of one index of the outer dimension.
template <class T, bool kIsMin>
class Search {
  using Best = BestOfColumns<T, kIsMin>;

 public:
  Search(const ArgmaxProblem& problem, const T* from) : p_(problem), from_(from) {}

  void run(std::int64_t first, std::int64_t end, std::int32_t* out) {
    if (p_.inner < kFewColumns) return run_few(first, end, out);
    for (; first < end; first += kMostColumns, out += kMostColumns)
      run_columns(first, std::min(kMostColumns, end - first), out);
  }

 private:
  void run_columns(std::int64_t first, std::int64_t columns, std::int32_t* out) {
    best_.start(from_ + first, columns);
    for (std::int64_t i = 1; i < p_.size; ++i) best_.add(from_ + i * p_.inner + first, columns, i);
    for (std::int64_t c = 0; c < columns; ++c) out[c] = static_cast<std::int32_t>(best_.step(c));
  }

  /// Several positions at a time are searched as separate columns. At the end, the best elements of
  /// the columns of a result are compared.
  void run_few(std::int64_t first, std::int64_t end, std::int32_t* out) {
    const std::int64_t positions = kFewColumns / p_.inner;
    const std::int64_t columns = positions * p_.inner;
    const std::int64_t steps = p_.size / positions;
    if (steps > 0) best_.start(from_, columns);
    for (std::int64_t i = 1; i < steps; ++i) best_.add(from_ + i * columns, columns, i);
    for (std::int64_t result = first; result < end; ++result) {
      Found<T> found{from_[result], 0};
      for (std::int64_t k = 0; steps > 0 && k < positions; ++k) {
        const std::int64_t column = k * p_.inner + result;
        join(found, {best_.best(column), best_.step(column) * positions + k});
      }
      for (std::int64_t i = steps * positions; i < p_.size; ++i)
        join(found, {from_[i * p_.inner + result], i});
      *out++ = static_cast<std::int32_t>(found.index);
    }
  }

  static void join(Found<T>& best, const Found<T>& other) {
    const bool is_first = other.index < best.index;
    const bool takes_place = is_first ? !Best::is_better(best.value, other.value)
                                      : Best::is_better(other.value, best.value);
    if (takes_place) best = other;
  }

  const ArgmaxProblem& p_;
  const T* from_;
  Best best_;
};

/// Rows that are shorter than a vector: several of them are searched at once.
template <class T, bool kIsMin>
void search_short_rows(std::int64_t size, std::int64_t rows, const T* in, std::int32_t* out) {
  BestOfColumns<T, kIsMin> best;
  T column[kFewColumns];
  for (std::int64_t first = 0; first < rows; first += kFewColumns) {
    const std::int64_t count = std::min(kFewColumns, rows - first);
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t r = 0; r < count; ++r) column[r] = in[(first + r) * size + i];
      i == 0 ? best.start(column, count) : best.add(column, count, i);
    }
    for (std::int64_t r = 0; r < count; ++r)
      out[first + r] = static_cast<std::int32_t>(best.step(r));
  }
}

template <class T, bool kIsMin>
void search(const ArgmaxProblem& p, std::int64_t first, std::int64_t end, const T* in,
            std::int32_t* out) {
  if (p.inner == 1 && p.size < kFewColumns)
    return search_short_rows<T, kIsMin>(p.size, end - first, in + first * p.size, out + first);
  while (first < end) {
    const std::int64_t outer = first / p.inner;
    const std::int64_t count = std::min(end, (outer + 1) * p.inner) - first;
    const std::int64_t column = first % p.inner;
    Search<T, kIsMin>(p, in + outer * p.size * p.inner).run(column, column + count, out + first);
    first += count;
  }
}

void argmax_of(const ArgmaxProblem& problem, std::int64_t first, std::int64_t end,
               const void* input, std::int32_t* output) {
  with_type(problem.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* in = static_cast<const T*>(input);
    if (problem.is_min) return search<T, true>(problem, first, end, in, output);
    search<T, false>(problem, first, end, in, output);
  });
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(argmax_of);

void argmax(const ArgmaxProblem& problem, std::int64_t first, std::int64_t end, const void* input,
            std::int32_t* output) {
  HWY_DYNAMIC_DISPATCH(argmax_of)(problem, first, end, input, output);
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
