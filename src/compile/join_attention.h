// Joins the two derivatives of an attention, so that its scores are computed once.
#pragma once

#include "ir/ir.h"

namespace tessera::compile {

/// An attention_grad_q and an attention_grad_kv of the same operands become one attention_grad in
/// the place of the first. If queries or keys are split, their operands differ, and they stay.
/// `function` is partitioned. The bits stay the same.
ir::Function join_attention_gradients(ir::Function function);

}  // namespace tessera::compile
