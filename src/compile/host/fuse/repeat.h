// Values that several regions compute instead of reading them.
#pragma once

#include "compile/host/fuse/fuse.h"
#include "ir/ir.h"

namespace tessera::compile::host {

/// Saves the memory of values that are cheap to recompute: if only regions read a value and a few
/// cheap ops compute it from stored values, each of these regions computes it. Never makes a region
/// read more bytes.
void repeat_cheap_values(const ir::Function& function, Fusion& fusion);

}  // namespace tessera::compile::host
