// How near the results of another compiler must be.
#pragma once

#include "ops/record.h"
#include "tests/stablehlo/cases.h"

namespace tessera::testing {

/// Of the values of one application.
Tolerance tolerance_of(const ops::OpRecord& op);

/// Whether the error of an element depends on all elements of a matrix.
bool is_factorisation(const ops::OpRecord& op);

/// Numbers that other compilers treat alike: tiny ones may become zeros there, and where a sum is
/// infinite depends on its order.
Arrays without_extremes(Arrays arrays, bool keeps_infinite);

}  // namespace tessera::testing
