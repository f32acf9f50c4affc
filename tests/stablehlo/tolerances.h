// How near the results of another compiler must be.
#pragma once

#include "ops/record.h"
#include "tests/stablehlo/cases.h"

namespace tessera::testing {

/// The tolerance for the values of one application of the op.
Tolerance tolerance_of(const ops::OpRecord& op);

/// Whether the error of an element depends on all elements of a matrix.
bool is_factorisation(const ops::OpRecord& op);

/// Changes numbers that other compilers treat differently: tiny ones may become zeros there, and
/// where a sum is infinite depends on its order.
Arrays without_extremes(Arrays arrays, bool keeps_infinite);

}  // namespace tessera::testing
