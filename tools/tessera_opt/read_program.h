// Reads the program that tessera-opt works on: IR text or a StableHLO module.
#pragma once

#include <string>

#include "ir/ir.h"

namespace tessera::opt {

/// The bytes of a file, or of standard input for `-`. Throws UserError.
std::string read_file(const std::string& file);
/// Whether these are the bytes of a StableHLO module.
bool is_bytecode(const std::string& bytes);
/// The program of a file of either kind. Unless `mesh` is empty, it replaces the mesh of the
/// program. Throws UserError.
ir::Function program_of(std::string bytes, const std::string& mesh);

}  // namespace tessera::opt
