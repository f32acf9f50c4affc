// Reads the IR text that tessera-opt works on.
#pragma once

#include <string>

#include "ir/ir.h"

namespace tessera::opt {

/// Parses a file, or standard input for `-`. Unless `mesh` is empty, it replaces the mesh of the
/// program. Throws UserError.
ir::Function read_program(const std::string& file, const std::string& mesh);

}  // namespace tessera::opt
