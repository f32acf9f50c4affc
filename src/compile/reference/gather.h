// The whole arrays that the reference engine computes with.
#pragma once

#include <vector>

#include "ops/host_array.h"
#include "run/tiles/tiled.h"

namespace tessera::compile {

/// Joins the tiles of each input; an input without tiles, which nothing reads, is zero. With
/// several processes, all of them must call it.
std::vector<ops::HostArray> gather_all(const std::vector<run::PlacementPtr>& placements,
                                       const std::vector<run::Tiles>& inputs);

}  // namespace tessera::compile
