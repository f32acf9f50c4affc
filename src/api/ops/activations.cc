// Activations, and sums of exponentials.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include <tessera/activations.h>
#include <tessera/control.h>

#include "api/operands.h"

namespace tessera {

using detail::as_array;
using detail::Ints;
using detail::public_op;

Array relu(Operand x) {
  // Unlike that of a maximum, the derivative at 0 is 0. NaN stays NaN.
  return public_op(x.where, [&] { return where(x <= 0, 0, x); });
}

Array sigmoid(Operand x) { return logistic(std::move(x)); }

Array softplus(Operand x) {
  // Either formula holds for all x, so derivatives of all orders are right at 0 too. Those of a
  // maximum and of abs are not.
  return public_op(x.where, [&] {
    const Array v = as_array("softplus", x);
    const Array is_positive = v > 0;
    return where(is_positive, v, 0) + log1p(exp(where(is_positive, -v, v)));
  });
}

Array silu(Operand x) {
  return public_op(x.where, [&] { return mul(x, logistic(x)); });
}

Array detail::Gelu::operator()(Operand x, bool approximate) const {
  return public_op(x.where, [&] {
    const Array v = detail::as_array("gelu", x);
    if (!approximate) return v * (0.5 * (1.0 + erf(v * std::sqrt(0.5))));
    const Array inner = std::sqrt(2.0 / 3.14159265358979323846) * (v + 0.044715 * (v * v * v));
    return v * (0.5 * (1.0 + tanh(inner)));
  });
}

Array log_sigmoid(Operand x) {
  return public_op(x.where, [&] { return neg(softplus(neg(x))); });
}

Array detail::LeakyRelu::operator()(Operand x, double slope) const {
  return public_op(x.where, [&] { return where(x >= 0, x, mul(x, slope)); });
}

Array detail::Elu::operator()(Operand x, double alpha) const {
  return public_op(x.where, [&] {
    const Array is_positive = x > 0;
    // The exponential of a large number would make the gradient NaN.
    return where(is_positive, x, mul(expm1(where(is_positive, 0, x)), alpha));
  });
}

Array selu(Operand x) {
  constexpr double kAlpha = 1.6732632423543772848170429916717;
  constexpr double kScale = 1.0507009873554804934193349852946;
  return public_op(x.where, [&] { return mul(elu(x, kAlpha), kScale); });
}

Array mish(Operand x) {
  return public_op(x.where, [&] { return mul(x, tanh(softplus(x))); });
}

Array soft_sign(Operand x) {
  return public_op(x.where, [&] { return div(x, abs(x) + 1); });
}

Array relu6(Operand x) {
  return public_op(x.where, [&] { return clamp(0, x, 6); });
}

Array hard_sigmoid(Operand x) {
  return public_op(x.where, [&] { return relu6(add(x, 3)) / 6; });
}

Array hard_silu(Operand x) {
  return public_op(x.where, [&] { return mul(x, hard_sigmoid(x)); });
}

Array hard_tanh(Operand x) {
  return public_op(x.where, [&] { return where(x > 1, 1, where(x < -1, -1, x)); });
}

Array detail::Glu::operator()(Operand x, std::int64_t axis) const {
  return public_op(x.where, [&] {
    const Array v = as_array("glu", x);
    const std::int64_t size =
        v.dim(detail::checked_axis("glu", axis, v.rank(), detail::describe(v)));
    if (size % 2 != 0) {
      detail::fail("glu", "the axis cannot be split into two equal halves", detail::describe(v),
                   fmt::format("an even size along axis {}", axis),
                   "give the layer before glu twice as many features as glu returns");
    }
    return slice(v, axis, 0, size / 2) * logistic(slice(v, axis, size / 2));
  });
}

Array detail::Softmax::operator()(Operand x, std::int64_t axis) const {
  return public_op(x.where, [&] {
    const Array v = as_array("softmax", x);
    detail::checked_axis("softmax", axis, v.rank(), detail::describe(v));
    if (v.dim(axis) == 0) return v;
    const Array unnormalized = exp(v - stop_gradient(max(v, axis, keepdims)));
    return unnormalized / sum(unnormalized, axis, keepdims);
  });
}

Array detail::LogSoftmax::operator()(Operand x, std::int64_t axis) const {
  return public_op(x.where, [&] {
    const Array v = as_array("log_softmax", x);
    detail::checked_axis("log_softmax", axis, v.rank(), detail::describe(v));
    if (v.dim(axis) == 0) return v;
    const Array shifted = v - stop_gradient(max(v, axis, keepdims));
    return shifted - log(sum(exp(shifted), axis, keepdims));
  });
}

Array logsumexp(Operand x, Axes axes, KeepDims keep) {
  return public_op(x.where, [&] {
    const Array v = as_array("logsumexp", x);
    const Ints dims = detail::checked_axes("logsumexp", axes, v);
    const auto is_empty = [&](std::int64_t dim) { return v.dim(dim) == 0; };
    if (std::any_of(dims.begin(), dims.end(), is_empty)) return log(sum(v, axes, keep));
    const Array highest = stop_gradient(max(v, axes, keepdims));
    // An infinite maximum would give inf - inf.
    const Array shift = where(is_finite(highest), highest, 0);
    Array total = log(sum(exp(v - shift), axes, keepdims)) + shift;
    if (keep == KeepDims::yes) return total;
    return dims.empty() ? total : squeeze(total, Axes(dims));
  });
}

Array logaddexp(Operand a, Operand b) {
  return public_op(a.where, [&] {
    // See softplus. The difference of equal infinities would be NaN.
    const Array is_greater = greater(a, b);
    const Array same = maximum(a, b);
    const Array is_infinite = logical_and(equal(a, b), is_inf(same));
    const Array high = where(is_infinite, same, where(is_greater, a, b));
    const Array distance = where(is_infinite, 0, where(is_greater, b, a) - high);
    return high + log1p(exp(distance));
  });
}

Array cumlogsumexp(Operand x, std::int64_t axis, bool reverse) {
  return public_op(x.where, [&] {
    const Array v = as_array("cumlogsumexp", x);
    detail::checked_axis("cumlogsumexp", axis, v.rank(), detail::describe(v));
    const auto join = [](const Array& a, const Array& b) { return logaddexp(a, b); };
    return associative_scan(join, v, axis, reverse);
  });
}

}  // namespace tessera
