// Values that several regions compute instead of reading them.
#pragma once

#include "compile/host/fuse/fuse.h"
#include "ir/ir.h"

namespace tessera::compile::host {

/// Frees values of the memory that they need: where only regions read a value, and it takes a few
/// cheap ops to compute it from stored values, each of them does so. Never reads more bytes.
void repeat_cheap_values(const ir::Function& function, Fusion& fusion);

}  // namespace tessera::compile::host
