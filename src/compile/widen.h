#pragma once

#include "ir/ir.h"

namespace tessera::compile {

/// A partitioned function in which kernels of the host that compute get f32 instead of bf16: with
/// conversions before them, and after them if their results are bf16. All of these are exact.
/// Nested functions are not changed.
ir::Function with_wide_operands(ir::Function function);

}  // namespace tessera::compile
