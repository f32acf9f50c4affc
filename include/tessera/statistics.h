// Statistics: quantiles, histograms, counts, searches in sorted arrays, and sets.
//
//   Array middle = median(x, 0);
//   Array quartiles = quantile(x, array({0.25F, 0.5F, 0.75F}), 0);   // [3, ..]
//   auto [counts, edges] = histogram(x, 20, {.range = {{0, 1}}});
//
// All sizes are known before the values are: where NumPy's result has a size that depends on the
// values, the function takes the size.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <tessera/ops.h>
#include <tessera/tree.h>

namespace TESSERA_EXPORT tessera {

// --- variance

/// The sum of (x - mean(x))^2 divided by n - ddof, where n is the number of elements. With `ddof`
/// 1, it is the sample variance. NaN unless n > ddof.
Array var(Operand x, Axes axes = {}, KeepDims keep = KeepDims::no, std::int64_t ddof = 0);
/// The square root of var. Where it is 0, so is its gradient.
Array stddev(Operand x, Axes axes = {}, KeepDims keep = KeepDims::no, std::int64_t ddof = 0);

// --- quantiles

/// What a quantile is between two elements: a mixture of them, the smaller one, the larger one,
/// their mean, or the closer one (the smaller one halfway).
enum class QuantileMethod : std::uint8_t { linear, lower, higher, midpoint, nearest };

/// The value below which a fraction q of the elements lies, for x of floats. q is a number from 0
/// to 1, or an array [k] of such numbers: f32, or f64 if x is; then the result has k as its first
/// dimension. NaN where an element is NaN, or where there are none.
Array quantile(Operand x, Operand q, Axes axes = {}, KeepDims keep = KeepDims::no,
               QuantileMethod method = QuantileMethod::linear);
/// quantile(x, q / 100).
Array percentile(Operand x, Operand q, Axes axes = {}, KeepDims keep = KeepDims::no,
                 QuantileMethod method = QuantileMethod::linear);
/// quantile(x, 0.5): the mean of the two middle elements if their number is even.
Array median(Operand x, Axes axes = {}, KeepDims keep = KeepDims::no);

// --- counts

struct Histogram {
  Array counts;  // [bins]: i32 or, with weights, their sums
  Array edges;   // [bins + 1]
  TESSERA_TREE(counts, edges)
};
struct HistogramOptions {
  /// Of the first and the last edge; by default, the smallest and the largest element.
  std::optional<std::pair<double, double>> range = {};
  std::optional<Array> weights = {};  // one for each element
};
/// How many elements of x, an array of floats, lie in each of `bins` bins of equal width. A bin
/// contains its lower edge; the last one also its upper edge. Elements outside are not counted.
Histogram histogram(Operand x, std::int64_t bins = 10, const HistogramOptions& options = {});
/// The same for bins between these ascending edges [bins + 1], for numbers of any dtype.
Histogram histogram(Operand x, const Array& edges, const std::optional<Array>& weights = {});

/// i32 [length]: how often each number from 0 to length - 1 occurs in an array of integers or, with
/// weights, the sum of the weights of its elements. As in JAX, negative numbers count as 0, and
/// larger ones are not counted.
Array bincount(Operand x, std::int64_t length, const std::optional<Array>& weights = {});

// --- searches and sets

/// Which place an element takes that is equal to others: before or after them.
enum class Side : std::uint8_t { left, right };
/// The i32 positions at which `values` would be inserted into the ascending array `sorted` [n] to
/// keep it sorted: [..] -> [..], from 0 to n. NaN is larger than all numbers, as in sort.
Array searchsorted(Operand sorted, Operand values, Side side = Side::left);
/// The i32 number of the bin of each element: i where edges[i - 1] <= x < edges[i] or, with
/// `right`, edges[i - 1] < x <= edges[i]. For descending edges, edges[i - 1] and edges[i] swap.
Array digitize(Operand x, Operand edges, bool right = false);
/// bool: whether each element of x is equal to an element of `values`.
Array isin(Operand x, Operand values);
/// The indices of the first `size` elements that are not 0 (or false), in row-major order: an i32
/// array [size] for each dimension of x. Places that are left have the index `fill`.
std::vector<Array> nonzero(Operand x, std::int64_t size, std::int64_t fill = 0);

/// The distinct elements of an array, ascending. All arrays have sizes that are known in advance.
struct Unique {
  Array values;   // [size]: the elements, then `fill` in the places that are left
  Array indices;  // i32 [size]: where each first occurs in the flattened array
  Array inverse;  // i32 of the shape of x: the place in `values` of each element of x
  Array counts;   // i32 [size]: how often each occurs; 0 for filled places
  TESSERA_TREE(values, indices, inverse, counts)
};
/// If there are more than `size` distinct elements, keeps the smallest; `inverse` may then be
/// `size` or more. All NaNs count as one. `fill` defaults to the smallest element.
Unique unique(Operand x, std::int64_t size, std::optional<Operand> fill = {});

// --- comparisons with a tolerance, and numbers that are none

struct CloseOptions {
  double rtol = 1e-5, atol = 1e-8;
  bool equal_nan = false;
};
/// bool: |a - b| <= atol + rtol |b|, or both are the same infinity or, with equal_nan, NaN.
Array isclose(Operand a, Operand b, const CloseOptions& options = {});
/// bool[]: whether isclose holds for all elements.
Array allclose(Operand a, Operand b, const CloseOptions& options = {});
/// x with NaN, inf and -inf replaced; by default the infinities become the largest finite numbers.
Array nan_to_num(Operand x, double nan = 0, std::optional<double> posinf = {},
                 std::optional<double> neginf = {});

}  // namespace tessera
