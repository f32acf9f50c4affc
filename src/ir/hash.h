// Hashes of functions, to find equal ones.
#pragma once

#include "ir/ir.h"

namespace tessera::ir {

/// Equal for equal functions, whatever their names, and usually different for others.
std::size_t hash_of(const Function& function);

}  // namespace tessera::ir
