// Ops on arrays: free functions and operators, with NumPy's broadcasting.
//
//   Array y = gelu(einsum("bsd,df->bsf", x, up) + bias);
//   Array loss = -mean(sum(one_hot(targets, vocab) * log_softmax(logits), -1));
//
// Operands may be arrays or numbers. Arrays must agree in dtype: nothing is widened silently, use
// astype. Negative axes count from the end. Every mistake throws UserError at the caller's line.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include <tessera/array.h>

namespace tessera {

/// Axes of a reduction: one, several or, by default, all.
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

/// For the last argument of reductions: reduced dimensions stay, with size 1.
inline constexpr bool keepdims = true;

// --- operators: elementwise, broadcasting

Array operator+(Operand a, Operand b);
Array operator-(Operand a, Operand b);
Array operator*(Operand a, Operand b);
Array operator/(Operand a, Operand b);
Array operator-(Operand x);
Array& operator+=(Array& a, Operand b);
Array& operator-=(Array& a, Operand b);
Array& operator*=(Array& a, Operand b);
Array& operator/=(Array& a, Operand b);
Array operator<(Operand a, Operand b);
Array operator<=(Operand a, Operand b);
Array operator>(Operand a, Operand b);
Array operator>=(Operand a, Operand b);
/// Write equal(a, b) for an array of bool, array_equal(a, b) for one bool.
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
Array abs(Operand x);
Array neg(Operand x);
/// -1, 0 or 1; keeps -0 and NaN.
Array sign(Operand x);
Array floor(Operand x);
Array ceil(Operand x);
/// To the nearest integer, of two the even one.
Array round(Operand x);
Array erf(Operand x);
/// 1 - erf(x), accurate where that is small.
Array erfc(Operand x);
Array erf_inv(Operand x);
Array cbrt(Operand x);
Array exp2(Operand x);
Array log2(Operand x);
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
Array square(Operand x);
Array logical_not(Operand x);
Array bitwise_not(Operand x);
/// Bits that are 1; bits that are 0 before the first 1.
Array population_count(Operand x);
Array count_leading_zeros(Operand x);

// --- elementwise, broadcasting

Array add(Operand a, Operand b);
Array sub(Operand a, Operand b);
Array mul(Operand a, Operand b);
/// For integers rounded towards zero.
Array div(Operand a, Operand b);
/// -0 < +0; NaN wins.
Array maximum(Operand a, Operand b);
Array minimum(Operand a, Operand b);
Array pow(Operand a, Operand b);
/// The angle of the point (x, y), in [-pi, pi].
Array atan2(Operand y, Operand x);
/// Remainder with the sign of `a`, as C's fmod and %.
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
/// Fills with the sign.
Array shift_right_arithmetic(Operand a, Operand b);

/// Converts elements; floats to integers towards zero.
Array astype(Operand x, DType dtype);
/// The same bits as another dtype of the same size.
Array bitcast(Operand x, DType dtype);

// --- shapes

/// One size may be -1: what is left over.
Array reshape(Operand x, Shape shape);
/// Dimension i of the result is dimension permutation[i] of x.
Array transpose(Operand x, std::vector<std::int64_t> permutation);
/// Reverses the dimensions.
Array transpose(Operand x);
Array swap_axes(Operand x, std::int64_t a, std::int64_t b);
/// A new dimension of size 1 that becomes number `axis`.
Array expand_dims(Operand x, std::int64_t axis);
/// Drops dimensions of size 1: these, or all of them.
Array squeeze(Operand x, Axes axes = {});
/// Repeats dimensions of size 1 and adds leading ones.
Array broadcast_to(Operand x, Shape shape);
/// Elements start, start + stride, ... below limit of one dimension.
Array slice(Operand x, std::int64_t axis, std::int64_t start, std::int64_t limit = to_end,
            std::int64_t stride = 1);
/// Adds low[i] elements before and high[i] after dimension i.
Array pad(Operand x, std::vector<std::int64_t> low, std::vector<std::int64_t> high,
          Operand value = 0);
Array concatenate(const std::vector<Array>& parts, std::int64_t axis = 0,
                  std::source_location where = std::source_location::current());
/// Arrays of one shape along a new dimension.
Array stack(const std::vector<Array>& parts, std::int64_t axis = 0,
            std::source_location where = std::source_location::current());
Array reverse(Operand x, Axes axes = {});
/// The index along dimension `axis`, for every element of `shape`.
Array iota(Shape shape, std::int64_t axis, DType dtype = DType::i32,
           std::source_location where = std::source_location::current());

// --- reductions: exact in the order of sums, see docs

Array sum(Operand x, Axes axes = {}, bool keep = false);
/// Divides by the global number of elements.
Array mean(Operand x, Axes axes = {}, bool keep = false);
Array max(Operand x, Axes axes = {}, bool keep = false);
Array min(Operand x, Axes axes = {}, bool keep = false);
/// Of bool arrays.
Array all(Operand x, Axes axes = {}, bool keep = false);
Array any(Operand x, Axes axes = {}, bool keep = false);
Array prod(Operand x, Axes axes = {}, bool keep = false);
/// i32 index of the first maximum, or of the first NaN.
Array argmax(Operand x, std::int64_t axis = -1);
Array argmin(Operand x, std::int64_t axis = -1);
/// Reductions of the elements up to each one, in index order; with `reverse` from the last one
/// down.
Array cumsum(Operand x, std::int64_t axis = -1, bool reverse = false);
Array cumprod(Operand x, std::int64_t axis = -1, bool reverse = false);
Array cummax(Operand x, std::int64_t axis = -1, bool reverse = false);
Array cummin(Operand x, std::int64_t axis = -1, bool reverse = false);

// --- contractions

struct DotDims {
  std::vector<std::int64_t> contract_a = {};
  std::vector<std::int64_t> contract_b = {};
  std::vector<std::int64_t> batch_a = {};
  std::vector<std::int64_t> batch_b = {};
};
/// Batch dimensions, then the free dimensions of a, then those of b. Products of bf16 are added in
/// f32 and rounded once, or kept: dot_general(a, b, dims, DType::f32).
Array dot_general(Operand a, Operand b, const DotDims& dims,
                  std::optional<DType> preferred_element_type = {});
/// [..., k] x [k, n] -> [..., n], as jnp.dot: contracts a's last dimension with b's last but one.
Array dot(Operand a, Operand b);
/// [..., m, k] x [..., k, n] -> [..., m, n]; leading dimensions broadcast.
Array matmul(Operand a, Operand b);
/// "bqhd,bkhd->bhqk": letters name dimensions, those that the result lacks are summed.
Array einsum(std::string_view text, Operand a, Operand b);
Array einsum(std::string_view text, Operand a);

// --- indexing and sorting

/// Slices of x at i32 `indices` of dimension `axis`; they take the place of that dimension.
/// Those out of range give NaN, the lowest integer or false.
Array take(Operand x, Operand indices, std::int64_t axis = 0);
/// x [n, ...] plus updates [indices..., ...] added at rows `indices`; those out of range are
/// dropped.
Array scatter_add(Operand x, Operand indices, Operand updates);
/// x with the slices of dimension `axis` at `indices` replaced by updates, whose shape is that of
/// take(x, indices, axis); the last update of a slice stays, indices out of range are dropped.
Array scatter(Operand x, Operand indices, Operand updates, std::int64_t axis = 0);
/// Elements of each line along `axis` at its own i32 indices: [a.., n, b..] and [a.., k, b..] ->
/// [a.., k, b..]. Indices out of range give NaN or the lowest integer.
Array take_along_axis(Operand x, Operand indices, std::int64_t axis = -1);
/// The part of x of shape `sizes` that begins at `starts`, i32 scalars, one per dimension. Starts
/// are moved so that the part lies inside.
Array dynamic_slice(Operand x, const std::vector<Operand>& starts, Shape sizes);
/// x with `update` in that place.
Array dynamic_update_slice(Operand x, Operand update, const std::vector<Operand>& starts);
/// The k largest elements in descending order, and their i32 indices; of equal ones the first.
std::pair<Array, Array> top_k(Operand x, std::int64_t k, std::int64_t axis = -1);
/// 1 at each index along a new last dimension of size `depth`.
Array one_hot(Operand indices, std::int64_t depth, DType dtype = DType::f32);
/// Ascending, stable, NaN last.
Array sort(Operand x, std::int64_t axis = -1);
/// Both sorted by `keys`.
std::pair<Array, Array> sort_by(Operand keys, Operand values, std::int64_t axis = -1);

// --- composites

Array relu(Operand x);
/// x times the normal distribution function, exactly or in the tanh form.
Array gelu(Operand x, bool approximate = true);
Array silu(Operand x);
Array softmax(Operand x, std::int64_t axis = -1);
Array log_softmax(Operand x, std::int64_t axis = -1);
/// log(sum(exp(x))) without overflow.
Array logsumexp(Operand x, Axes axes = {}, bool keep = false);

// --- hints

/// x, through which no gradient flows.
Array stop_gradient(Operand x);
/// x, laid out as `spec` says on the mesh in scope (use_mesh, or the mesh of the arguments of the
/// jitted call). Without a mesh it is x.
Array with_sharding_constraint(Operand x, const PartitionSpec& spec);
Array with_sharding_constraint(Operand x, const NamedSharding& sharding);

}  // namespace tessera
