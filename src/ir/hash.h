// Hashes and keys of functions, to find equal ones.
#pragma once

#include "ir/ir.h"

namespace tessera::ir {

/// Equal for equal functions, whatever their names, and usually different for others.
std::size_t hash_of(const Function& function);

/// Appends bytes that are equal for equal functions only. Names and source lines do not count; ops
/// and callbacks count by their address, so whatever is stored under a key must keep the function
/// alive.
void append_key(std::string& key, const Function& function);

}  // namespace tessera::ir
