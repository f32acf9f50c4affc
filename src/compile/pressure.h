// How much memory a program holds from equation to equation, before it is lowered.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/barriers.h"
#include "compile/host/fuse.h"

namespace tessera::compile {

/// Where more is held than before and after it, by a part of the peak that matters.
struct Hump {
  std::size_t place = 0;    // equations before it
  std::int64_t across = 0;  // bytes that are made before it and read behind it
};

/// Of values with memory of their own that are neither inputs nor outputs, all tiles counted.
struct Pressure {
  host::Fusion fusion;
  std::int64_t peak = 0;    // bytes, the most at one time
  std::vector<Hump> humps;  // with ascending places
};
Pressure pressure_of(const Phased& program);

/// The bytes of all distinct tiles of a value, but for what tiles overlap. `atoms` are those of the
/// mesh.
std::int64_t bytes_of(const ir::Function& function, const std::vector<Atom>& atoms,
                      ir::ValueId value);

}  // namespace tessera::compile
