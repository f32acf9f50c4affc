// How a gamma number changes with its shape parameter.
#pragma once

#include <tessera/array.h>

namespace tessera::detail {

/// For scalars: the derivative of a number x > 0 of the gamma distribution with respect to alpha,
/// along which its place in the distribution stays the same: -(dF / d alpha) / (dF / dx), where
/// F(x, alpha) is the distribution function. As jax.lax.random_gamma_grad.
Array gamma_derivative(const Array& alpha, const Array& x);

}  // namespace tessera::detail
