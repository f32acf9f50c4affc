// Statistics of float arrays, computed in the dtype that sums are computed in.
#pragma once

#include <tessera/ops.h>

#include "api/operands.h"
#include "ops/emit.h"

namespace tessera::detail {

/// Calls `compute` with the operand as a float array, in the dtype that sums are computed in, and
/// rounds its result to the dtype of the operand.
template <typename Compute>
Array of_floats(const char* name, const Operand& x, const Compute& compute) {
  return public_op(x.where, [&] {
    const Array v = as_array(name, x);
    check_floats(name, v);
    return with_dtype(compute(with_dtype(v, ops::sum_dtype(v.dtype()))), v.dtype());
  });
}

/// The square root, with the gradient 0 at 0, where that of sqrt is infinite.
inline Array root(const Array& x) {
  const Array is_zero = equal(x, 0);
  return where(is_zero, 0, sqrt(where(is_zero, 1, x)));
}

}  // namespace tessera::detail
