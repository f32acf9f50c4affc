// Fourier transforms of rows whose length has small prime factors.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::kernels::fourier {

/// How many lines are transformed together: as many as a cache line has elements.
template <typename T>
inline constexpr std::int64_t kWidth = 64 / sizeof(T);

/// The largest prime factor that a pass takes: larger ones need many terms for each element.
inline constexpr std::int64_t kLargestRadix = 127;

/// Real and imaginary parts.
template <typename T>
struct Parts {
  T* re;
  T* im;
  Parts swapped() const { return {im, re}; }
  Parts operator+(std::int64_t offset) const { return {re + offset, im + offset}; }
  operator Parts<const T>() const { return {re, im}; }  // NOLINT(google-explicit-constructor)
};

/// One pass over lines of radix * groups * stride elements. Element [p, k, q] of the result is the
/// sum over j of exp(-2 pi i j k / radix) times element [j, p, q] of the operand, times the turn
/// exp(-2 pi i p k / (radix * groups)).
template <typename T>
struct Pass {
  std::int64_t radix;
  std::int64_t groups;
  std::int64_t stride;
  std::vector<T> turns = {};  // [groups, radix - 1] pairs of cosine and sine; none for one group
  std::vector<T> roots = {};  // [radix] cosines, then sines; for odd radices
};

/// The passes of a transform of lines: Stockham's method, whose result is in order.
template <typename T>
struct Chain {
  std::int64_t length = 1;
  std::vector<Pass<T>> passes = {};
};

/// A row of `first.length * second.length` elements is a matrix [first, second]. Its columns are
/// transformed, each element is turned, and then the columns of the transposed matrix are
/// transformed. Shorter rows have one chain, and `kWidth` rows are transformed together. The
/// operations for an element depend only on the length and the dtype.
template <typename T>
struct RowPlan {
  std::int64_t length = 1;
  Chain<T> first = {};
  Chain<T> second = {};       // of length 1 if rows are transformed together
  std::vector<T> turns = {};  // [first, second] cosines, then sines

  bool is_split() const { return second.length > 1; }
  /// Whether kWidth rows at a time are faster than one. Strips of a single row would compute some
  /// columns twice, and kWidth rows stay in the cache.
  bool has_blocks() const {
    constexpr std::int64_t kLongest = 2048;
    const bool fills_strips = first.length % kWidth<T> == 0 && second.length % kWidth<T> == 0;
    return is_split() && length <= kLongest && !fills_strips;
  }
};

/// Whether all prime factors are small enough.
bool has_passes(std::int64_t length);
template <typename T>
RowPlan<T> row_plan(std::int64_t length);

/// kWidth lines or more: their elements with the number i begin at `parts + i * stride`.
template <typename T>
struct Lines {
  Parts<T> parts;
  std::int64_t stride;
};

/// The number of scratch elements that a transform of kWidth lines needs.
template <typename T>
std::int64_t lines_scratch_size(const RowPlan<T>& plan);
/// The number of scratch elements that transform_rows() needs.
template <typename T>
std::int64_t scratch_size(const RowPlan<T>& plan);
/// The transforms of `count` rows, times `scale`. `from` and `to` must not overlap.
void transform_rows(const RowPlan<float>& plan, std::int64_t count, Parts<const float> from,
                    Parts<float> to, float scale, float* scratch);
void transform_rows(const RowPlan<double>& plan, std::int64_t count, Parts<const double> from,
                    Parts<double> to, double scale, double* scratch);

/// The number of scratch elements that transform_columns() needs.
template <typename T>
std::int64_t columns_scratch_size(const RowPlan<T>& plan, std::int64_t count);
/// The same for `count` adjacent lines.
void transform_columns(const RowPlan<float>& plan, std::int64_t count, Lines<const float> from,
                       Lines<float> to, float scale, float* scratch);
void transform_columns(const RowPlan<double>& plan, std::int64_t count, Lines<const double> from,
                       Lines<double> to, double scale, double* scratch);

}  // namespace tessera::kernels::fourier
