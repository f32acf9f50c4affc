// How fusion finds out where values are read.
#pragma once

#include "compile/host/fuse/fuse.h"
#include "ir/ir.h"

namespace tessera::compile::host {

/// Ops with a formula per element, which join regions.
bool is_elementwise(const ir::Function& function, const ir::Equation& equation);
/// Generators read whole operands for every element.
bool reads_whole_operands(const ir::Function& function, const ir::Equation& equation);
/// Fills in everything in `fusion` except its nodes and buffers: constants, views, readings and
/// index spaces.
void find_readings(const ir::Function& function, bool transfers_move, Fusion& fusion);

}  // namespace tessera::compile::host
