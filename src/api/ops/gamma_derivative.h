// How a gamma-distributed number changes with its shape parameter.
#pragma once

#include <tessera/array.h>

namespace tessera::detail {

/// For scalars: the derivative with respect to alpha of a number x > 0 of the gamma distribution
/// that stays at its quantile: -(dF / d alpha) / (dF / dx), where F(x, alpha) is the distribution
/// function. The same as jax.lax.random_gamma_grad.
Array gamma_derivative(const Array& alpha, const Array& x);

}  // namespace tessera::detail
