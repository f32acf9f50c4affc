// Programs of JAX as programs of the IR.
//
//   Imported program = stablehlo::import_module(*bytecode::read_module(bytes));
//
// Calls are inlined. Values of ui64 become u32 where no element can reach 2^32, as in the counters
// of random bits. What the IR cannot express is a UserError with the operation, its types and the
// line of the Python program.
#pragma once

#include <string>
#include <vector>

#include "ir/ir.h"
#include "stablehlo/bytecode/module.h"

namespace tessera::stablehlo {

/// An array of the program itself, row-major and little-endian; a bool takes a byte.
struct ConstantArray {
  Type type;
  std::string bytes;
};

struct Imported {
  /// `main`. Its inputs are the arguments, then the constants. Inputs have the shardings that the
  /// module states, results a sharding_constraint.
  ir::Function function;
  std::vector<ConstantArray> constants;
  /// Per argument: whether its memory may be reused.
  std::vector<bool> donated;
};

/// Throws UserError.
Imported import_module(const bytecode::Module& module);

}  // namespace tessera::stablehlo
