#pragma once

#include "ir/ir.h"

namespace tessera::compile {

/// A partitioned function in which kernels of the host that compute take f32 in the place of bf16:
/// conversions stand before them, and behind them where their results are bf16. All of these are
/// exact. Nested functions stay as they are.
ir::Function with_wide_operands(ir::Function function);

}  // namespace tessera::compile
