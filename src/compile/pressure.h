// How much memory a program holds at each equation, before it is lowered.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/barriers.h"
#include "compile/host/fuse/fuse.h"

namespace tessera::compile {

/// A local maximum of the bytes held that stands out by a significant part of the peak.
struct Hump {
  std::size_t place = 0;    // equations before it
  std::int64_t across = 0;  // bytes of values that are made before it and read after it
};

/// Counts all tiles of values that are stored and are neither inputs nor outputs.
struct Pressure {
  host::Fusion fusion;
  std::int64_t peak = 0;    // bytes, the most at any time
  std::vector<Hump> humps;  // with ascending places
};
Pressure pressure_of(const Phased& program);

/// The bytes of all distinct tiles of a value, not counting overlaps of tiles. `atoms` are those of
/// the mesh.
std::int64_t bytes_of(const ir::Function& function, const std::vector<Atom>& atoms,
                      ir::ValueId value);

}  // namespace tessera::compile
