// Which values of a scalar program are in registers of the processor.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/host/kernels/loop/code/scalar_program.h"

namespace tessera::kernels::loops {

/// The numbers of the registers that values may have. A register that calls keep comes last.
struct RegisterFile {
  std::vector<int> general;
  std::vector<int> general_kept;  // by calls
  std::vector<int> vector;
};

struct Location {
  enum class Kind : std::uint8_t { none, constant, general, vector, slot };
  Kind kind = Kind::none;
  int index = 0;  // of the register, or of the slot of 8 bytes on the stack
  friend bool operator==(const Location&, const Location&) = default;
};

struct Allocation {
  std::vector<Location> locations;  // per value
  std::size_t num_slots = 0;
};

/// A linear scan: where registers do not suffice, the value that is needed longest gets a slot.
Allocation allocate(const ScalarProgram& program, const RegisterFile& file);

}  // namespace tessera::kernels::loops
