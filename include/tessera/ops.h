// Ops on arrays: free functions and operators, with NumPy's broadcasting.
//
//   Array y = gelu(einsum("bsd,df->bsf", x, up) + bias);
//   Array loss = -mean(sum(one_hot(targets, vocab) * log_softmax(logits), -1));
//
// Operands are arrays or numbers. Arrays must have the same dtype: nothing is converted silently;
// use astype. Negative axes count from the end. Mistakes throw UserError with the caller's line.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include <tessera/array.h>

namespace TESSERA_EXPORT tessera {

/// The axes of a reduction: one, several or, by default, all.
class Axes {
 public:
  Axes() = default;
  Axes(std::int64_t axis) : all_(false), list_{axis} {}  // NOLINT
  Axes(std::initializer_list<std::int64_t> axes)         // NOLINT
      : all_(axes.size() == 0), list_(axes) {}
  explicit Axes(std::vector<std::int64_t> axes) : all_(false), list_(std::move(axes)) {}
  bool all() const { return all_; }
  const std::vector<std::int64_t>& list() const { return list_; }

 private:
  bool all_ = true;
  std::vector<std::int64_t> list_;
};

/// Whether a reduction keeps the reduced dimensions, with size 1.
enum class KeepDims : bool { no, yes };
inline constexpr KeepDims keepdims = KeepDims::yes;

// --- operators: elementwise, broadcasting

Array operator+(Operand a, Operand b);
Array operator-(Operand a, Operand b);
Array operator*(Operand a, Operand b);
Array operator/(Operand a, Operand b);
/// As in C: the result has the sign of `a`; see rem.
Array operator%(Operand a, Operand b);
Array operator-(Operand x);
Array& operator+=(Array& a, Operand b);
Array& operator-=(Array& a, Operand b);
Array& operator*=(Array& a, Operand b);
Array& operator/=(Array& a, Operand b);
Array operator<(Operand a, Operand b);
Array operator<=(Operand a, Operand b);
Array operator>(Operand a, Operand b);
Array operator>=(Operand a, Operand b);
/// For bool arrays. Unlike in C++, both sides are always computed.
Array operator&&(Operand a, Operand b);
Array operator||(Operand a, Operand b);
Array operator!(Operand x);
/// Logical for bool arrays, bitwise for integers. >> fills with the sign bit; for u32, with zeros.
Array operator&(Operand a, Operand b);
Array operator|(Operand a, Operand b);
Array operator^(Operand a, Operand b);
Array operator~(Operand x);
Array operator<<(Operand a, Operand b);
Array operator>>(Operand a, Operand b);
/// Use equal(a, b), which returns an array of bool, or array_equal(a, b), which returns one bool.
bool operator==(Operand a, Operand b) = delete;
bool operator!=(Operand a, Operand b) = delete;

// --- elementwise, one operand

Array exp(Operand x);
Array log(Operand x);
Array log1p(Operand x);
Array expm1(Operand x);
Array tanh(Operand x);
/// 1 / (1 + exp(-x)).
Array logistic(Operand x);
Array sqrt(Operand x);
Array rsqrt(Operand x);
Array sin(Operand x);
Array cos(Operand x);
/// The derivative at 0 is 0.
Array abs(Operand x);
Array neg(Operand x);
/// -1, 0 or 1; -0 and NaN are returned as they are.
Array sign(Operand x);
Array floor(Operand x);
Array ceil(Operand x);
/// Rounds to the nearest integer, ties to even.
Array round(Operand x);
Array erf(Operand x);
/// 1 - erf(x), accurate even for small results.
Array erfc(Operand x);
Array erf_inv(Operand x);
Array cbrt(Operand x);
Array exp2(Operand x);
Array log2(Operand x);
Array log10(Operand x);
Array tan(Operand x);
Array asin(Operand x);
Array acos(Operand x);
Array atan(Operand x);
Array sinh(Operand x);
Array cosh(Operand x);
Array asinh(Operand x);
Array acosh(Operand x);
Array atanh(Operand x);
/// bool: neither infinite nor NaN.
Array is_finite(Operand x);
Array is_inf(Operand x);
Array is_nan(Operand x);
Array square(Operand x);
Array logical_not(Operand x);
Array bitwise_not(Operand x);
/// population_count: the number of 1 bits; count_leading_zeros: of 0 bits before the first 1.
Array population_count(Operand x);
Array count_leading_zeros(Operand x);

// --- elementwise, broadcasting

Array add(Operand a, Operand b);
Array sub(Operand a, Operand b);
Array mul(Operand a, Operand b);
/// Integer division rounds towards zero.
Array div(Operand a, Operand b);
/// -0 is less than +0. The result is NaN if an operand is NaN.
Array maximum(Operand a, Operand b);
Array minimum(Operand a, Operand b);
Array pow(Operand a, Operand b);
/// The angle of the point (x, y), in [-pi, pi].
Array atan2(Operand y, Operand x);
/// The remainder with the sign of `a`, like fmod and % in C.
Array rem(Operand a, Operand b);
/// a * b + c, rounded once.
Array fma(Operand a, Operand b, Operand c);
/// min(max(x, low), high).
Array clamp(Operand low, Operand x, Operand high);
/// `a` where `condition` (bool) holds, `b` elsewhere.
Array where(Operand condition, Operand a, Operand b);
Array select(Operand condition, Operand a, Operand b);

Array equal(Operand a, Operand b);
Array not_equal(Operand a, Operand b);
Array less(Operand a, Operand b);
Array less_equal(Operand a, Operand b);
Array greater(Operand a, Operand b);
Array greater_equal(Operand a, Operand b);

Array logical_and(Operand a, Operand b);
Array logical_or(Operand a, Operand b);
Array logical_xor(Operand a, Operand b);
Array bitwise_and(Operand a, Operand b);
Array bitwise_or(Operand a, Operand b);
Array bitwise_xor(Operand a, Operand b);
Array shift_left(Operand a, Operand b);
/// Fills with zeros.
Array shift_right(Operand a, Operand b);
/// Fills with the sign bit.
Array shift_right_arithmetic(Operand a, Operand b);

/// Converts elements; floats are truncated to integers.
Array astype(Operand x, DType dtype);
/// The same bits, interpreted as another dtype of the same size.
Array bitcast(Operand x, DType dtype);

// --- shapes

/// One size may be -1; it is then inferred.
Array reshape(Operand x, Shape shape);
/// Dimension i of the result is dimension permutation[i] of x.
Array transpose(Operand x, std::vector<std::int64_t> permutation);
/// Reverses the dimensions.
Array transpose(Operand x);
Array swap_axes(Operand x, std::int64_t a, std::int64_t b);
/// Inserts a dimension of size 1 as dimension `axis`.
Array expand_dims(Operand x, std::int64_t axis);
/// Removes dimensions of size 1: the given ones or, by default, all.
Array squeeze(Operand x, Axes axes = {});
/// Repeats dimensions of size 1, and adds leading dimensions.
Array broadcast_to(Operand x, Shape shape);
/// The elements start, start + stride, ... below `limit` along `axis`.
Array slice(Operand x, std::int64_t axis, std::int64_t start, std::int64_t limit = to_end,
            std::int64_t stride = 1);
/// Repeats each slice along `axis` `times` times: 1, 1, 2, 2, ...
Array repeat(Operand x, std::int64_t times, std::int64_t axis = 0);
/// Adds low[i] elements before and high[i] elements after dimension i.
Array pad(Operand x, std::vector<std::int64_t> low, std::vector<std::int64_t> high,
          Operand value = 0);
Array concatenate(const std::vector<Array>& parts, std::int64_t axis = 0,
                  std::source_location where = std::source_location::current());
/// Joins arrays of the same shape along a new dimension.
Array stack(const std::vector<Array>& parts, std::int64_t axis = 0,
            std::source_location where = std::source_location::current());
Array reverse(Operand x, Axes axes = {});
/// An array in which each element is its own index along dimension `axis`.
Array iota(Shape shape, std::int64_t axis, DType dtype = DType::i32,
           std::source_location where = std::source_location::current());

// --- reductions; sums follow a fixed tree: see docs/sharding.md

Array sum(Operand x, Axes axes = {}, KeepDims keep = KeepDims::no);
/// Divides by the global number of elements.
Array mean(Operand x, Axes axes = {}, KeepDims keep = KeepDims::no);
Array max(Operand x, Axes axes = {}, KeepDims keep = KeepDims::no);
Array min(Operand x, Axes axes = {}, KeepDims keep = KeepDims::no);
/// For bool arrays.
Array all(Operand x, Axes axes = {}, KeepDims keep = KeepDims::no);
Array any(Operand x, Axes axes = {}, KeepDims keep = KeepDims::no);
Array prod(Operand x, Axes axes = {}, KeepDims keep = KeepDims::no);
/// The i32 index of the first maximum, or of the first NaN.
Array argmax(Operand x, std::int64_t axis = -1);
Array argmin(Operand x, std::int64_t axis = -1);
/// Cumulative reductions, in index order; with `reverse`, from the last element to the first.
Array cumsum(Operand x, std::int64_t axis = -1, bool reverse = false);
Array cumprod(Operand x, std::int64_t axis = -1, bool reverse = false);
Array cummax(Operand x, std::int64_t axis = -1, bool reverse = false);
Array cummin(Operand x, std::int64_t axis = -1, bool reverse = false);

// --- contractions

/// The contracting and batch dimensions of both operands, in corresponding order.
struct DotDims {
  std::vector<std::int64_t> contract_a = {};
  std::vector<std::int64_t> contract_b = {};
  std::vector<std::int64_t> batch_a = {};
  std::vector<std::int64_t> batch_b = {};
};
/// The result has the batch dimensions, then the free dimensions of a, then those of b. Products of
/// f16 and bf16 are accumulated in f32 and rounded once at the end; with DType::f32 as the fourth
/// argument, they are not rounded.
Array dot_general(Operand a, Operand b, const DotDims& dims,
                  std::optional<DType> preferred_element_type = {});
/// [..., k] x [k, n] -> [..., n], like jnp.dot: contracts the last dimension of a with the
/// second-to-last dimension of b.
Array dot(Operand a, Operand b);
/// [..., m, k] x [..., k, n] -> [..., m, n]; leading dimensions broadcast.
Array matmul(Operand a, Operand b);
/// As jnp.einsum: "bqhd,bkhd->bhqk" names dimensions, and sums over those that the result lacks.
/// "bii->bi" takes diagonals, and "...ij,...jk->...ik" broadcasts other dimensions. "ij,jk" gives
/// the letters that occur once, sorted.
Array einsum(std::string_view text, Operand a, Operand b);
Array einsum(std::string_view text, Operand a);
/// Multiplies two operands at a time: each time the pair whose product is smallest compared with
/// its operands. f16 and bf16 are rounded after each product.
Array einsum(std::string_view text, const std::vector<Operand>& operands,
             std::source_location where = std::source_location::current());

// --- indexing and sorting

/// The slices of x at the i32 `indices` along dimension `axis`, which is replaced by the dimensions
/// of `indices`. Indices out of range give NaN, the lowest integer or false.
Array take(Operand x, Operand indices, std::int64_t axis = 0);
/// x [n, ...] with updates [indices..., ...] added to its rows `indices`. Updates for indices out
/// of range are dropped.
Array scatter_add(Operand x, Operand indices, Operand updates);
/// x with its slices at `indices` along dimension `axis` replaced by updates, which have the shape
/// of take(x, indices, axis). The last update of a slice wins; indices out of range are dropped.
Array scatter(Operand x, Operand indices, Operand updates, std::int64_t axis = 0);
/// x [n, ...] and i32 ids [n] -> [count, ...]: the sum of the rows whose id is i; zeros if there
/// are none. Rows with other ids are dropped.
Array segment_sum(Operand x, Operand ids, std::int64_t count);
/// The same sums divided by the number of rows, or by 1 where there are none.
Array segment_mean(Operand x, Operand ids, std::int64_t count);
/// The maximum of the rows; NaN if one of them is NaN. Without rows, the lowest number (-inf for
/// floats). Equal elements share the gradient.
Array segment_max(Operand x, Operand ids, std::int64_t count);
Array segment_min(Operand x, Operand ids, std::int64_t count);
/// The softmax of each element over the rows with its id: [n, ...] -> [n, ...]; 0 for other ids.
Array segment_softmax(Operand x, Operand ids, std::int64_t count);
/// Takes elements along `axis`, with separate i32 indices for each line: [a.., n, b..] and [a.., k,
/// b..] -> [a.., k, b..]. Indices out of range give NaN or the lowest integer.
Array take_along_axis(Operand x, Operand indices, std::int64_t axis = -1);
/// The part of x that has the shape `sizes` and begins at `starts`, one i32 scalar per dimension.
/// Starts are clamped so that the part lies inside x.
Array dynamic_slice(Operand x, const std::vector<Operand>& starts, Shape sizes);
/// x with the part that begins at `starts` replaced by `update`. Starts are clamped likewise.
Array dynamic_update_slice(Operand x, Operand update, const std::vector<Operand>& starts);
/// The k largest elements in descending order, and their i32 indices. Among equal elements, the
/// first is taken first.
std::pair<Array, Array> top_k(Operand x, std::int64_t k, std::int64_t axis = -1);
/// Adds a last dimension of size `depth`: 1 at the index, 0 elsewhere.
Array one_hot(Operand indices, std::int64_t depth, DType dtype = DType::f32);
/// Sorts in ascending order; stable, with NaN last.
Array sort(Operand x, std::int64_t axis = -1);
/// The keys and the values, both sorted by key.
std::pair<Array, Array> sort_by(Operand keys, Operand values, std::int64_t axis = -1);
/// The i32 positions of the elements, in the order of sort.
Array argsort(Operand x, std::int64_t axis = -1);

// --- hints

/// x, but no gradient flows through it.
Array stop_gradient(Operand x);
/// x with this sharding, on the mesh in scope: that of use_mesh, or of the arguments of the jitted
/// call. Without a mesh, returns x.
Array with_sharding_constraint(Operand x, const PartitionSpec& spec);
Array with_sharding_constraint(Operand x, const NamedSharding& sharding);

}  // namespace tessera
