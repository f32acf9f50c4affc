#pragma once

#include "base/dot_unit.h"
#include "ir/ir.h"

namespace tessera::compile {

/// A partitioned function in which host kernels that do arithmetic get numbers of 32 or 64 bits:
/// f32 instead of f16 and bf16, i32 instead of i8 and i16, u32 instead of u8 and u16. Operands are
/// converted before the kernels, and results of narrower dtypes after them. All of these
/// conversions are exact. Nested functions are not changed. bf16 operands stay as they are if the
/// kernel can read them. A convolution whose products are those of `unit` gets f32 if that gives
/// the same bits: f32 windows are read in place, whereas bf16 is packed term by term.
ir::Function with_wide_operands(ir::Function function, DotUnit unit);

}  // namespace tessera::compile
