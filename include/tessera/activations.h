// Activations, softmax, and sums of exponentials.
#pragma once

#include <cstdint>

#include <tessera/ops.h>

namespace TESSERA_EXPORT tessera {

namespace detail {
// A function with default arguments cannot be passed on as a function of one array, for example to
// nn::Sequential. An object can.
struct Gelu {
  Array operator()(Operand x, bool approximate = true) const;
};
struct LeakyRelu {
  Array operator()(Operand x, double slope = 0.01) const;
};
struct Elu {
  Array operator()(Operand x, double alpha = 1) const;
};
struct Glu {
  Array operator()(Operand x, std::int64_t axis = -1) const;
};
struct Softmax {
  Array operator()(Operand x, std::int64_t axis = -1) const;
};
struct LogSoftmax {
  Array operator()(Operand x, std::int64_t axis = -1) const;
};
}  // namespace detail

/// max(x, 0). The derivative at 0 is 0.
Array relu(Operand x);
/// gelu(x, approximate = true): x times the normal distribution function of x, either exact or
/// approximated with tanh.
inline constexpr detail::Gelu gelu{};  // NOLINT(readability-identifier-naming)
/// x times logistic(x), also known as swish.
Array silu(Operand x);
/// The same as logistic.
Array sigmoid(Operand x);
/// log(1 + exp(x)) without overflow.
Array softplus(Operand x);
/// log(logistic(x)) without overflow.
Array log_sigmoid(Operand x);
/// leaky_relu(x, slope = 0.01): x, or x times `slope` where x < 0.
inline constexpr detail::LeakyRelu leaky_relu{};  // NOLINT(readability-identifier-naming)
/// elu(x, alpha = 1): x, or alpha (exp(x) - 1) where x < 0.
inline constexpr detail::Elu elu{};  // NOLINT(readability-identifier-naming)
/// elu, scaled so that mean 0 and variance 1 stay as they are (Klambauer et al. 2017).
Array selu(Operand x);
/// x tanh(softplus(x)).
Array mish(Operand x);
/// x / (1 + |x|).
Array soft_sign(Operand x);
/// min(max(x, 0), 6).
Array relu6(Operand x);
/// relu6(x + 3) / 6.
Array hard_sigmoid(Operand x);
/// x times hard_sigmoid(x).
Array hard_silu(Operand x);
/// min(max(x, -1), 1).
Array hard_tanh(Operand x);
/// glu(x, axis = -1): the first half of x along `axis` times logistic(the second half).
inline constexpr detail::Glu glu{};  // NOLINT(readability-identifier-naming)
/// softmax(x, axis = -1): exp(x) divided by its sum along `axis`, without overflow.
inline constexpr detail::Softmax softmax{};  // NOLINT(readability-identifier-naming)
/// log_softmax(x, axis = -1): log(softmax(x)).
inline constexpr detail::LogSoftmax log_softmax{};  // NOLINT(readability-identifier-naming)
/// log(sum(exp(x))) without overflow.
Array logsumexp(Operand x, Axes axes = {}, KeepDims keep = KeepDims::no);
/// log(exp(a) + exp(b)) without overflow.
Array logaddexp(Operand a, Operand b);
/// The logsumexp of all elements up to each position; with `reverse`, from the last element down.
Array cumlogsumexp(Operand x, std::int64_t axis = -1, bool reverse = false);

}  // namespace tessera
