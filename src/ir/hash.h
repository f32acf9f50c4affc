// Finding equal functions.
#pragma once

#include "ir/ir.h"

namespace tessera::ir {

/// Equal for equal functions, whatever their names; tells apart most of those that differ.
std::size_t hash_of(const Function& function);

}  // namespace tessera::ir
