// The flags of tessera-opt, and what it does with them.
#pragma once

#include <string>

namespace tessera::opt {

struct Flags {
  std::string file = "-";
  std::string from, to, passes;
  std::string differentiate;
  bool simplify = false;
  bool partition = false;
  std::string mesh, storage, disable, emit;
  bool list = false, verify = false, time = false, dump_each = false, explain = false;
};

/// Reads the program, runs the passes and prints the result to standard output, timings and dumps
/// to standard error. Throws UserError.
void run_opt(Flags flags);

}  // namespace tessera::opt
