#pragma once

#include "base/dot_unit.h"
#include "ir/ir.h"

namespace tessera::compile {

/// A partitioned function in which kernels of the host that compute get f32 instead of bf16: with
/// conversions before them, and after them if their results are bf16. All of these are exact.
/// Nested functions are not changed. So do convolutions whose products are those of `unit`, if that
/// gives the same bits: they read windows of f32 in place, whereas bf16 is packed term by term.
ir::Function with_wide_operands(ir::Function function, DotUnit unit);

}  // namespace tessera::compile
