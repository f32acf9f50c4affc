// The IR text that tessera-opt works on.
#pragma once

#include <string>

#include "ir/ir.h"

namespace tessera::opt {

/// Parses a file, or standard input for `-`; `mesh` takes the place of the program's own unless it
/// is empty. Throws UserError.
ir::Function read_program(const std::string& file, const std::string& mesh);

}  // namespace tessera::opt
