// How much memory a program holds from equation to equation, before it is lowered.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/barriers.h"
#include "compile/host/fuse.h"

namespace tessera::compile {

/// Bytes of values with memory of their own that are neither inputs nor outputs, all tiles counted.
struct Pressure {
  host::Fusion fusion;
  std::int64_t peak = 0;    // the most at one time, operands and results included
  std::size_t place = 0;    // equations before the place where most is held
  std::int64_t across = 0;  // what is made before it and read behind it
};
Pressure pressure_of(const Phased& program);

/// The bytes of all distinct tiles of a value.
std::int64_t bytes_of(const ir::Function& function, ir::ValueId value);

}  // namespace tessera::compile
