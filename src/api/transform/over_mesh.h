// Functions of tiles in imported programs.
#pragma once

#include <vector>

#include "stablehlo/import/import.h"

namespace tessera::detail {

/// Maps a function as shard_map does; see stablehlo::MapTiles. If a result differs along an axis
/// that its spec does not name, the value of the first device is used.
std::vector<ir::ValueId> map_tiles(ir::Builder& b, const Mesh& mesh, stablehlo::ManualBody body,
                                   const std::vector<ir::ValueId>& operands);

}  // namespace tessera::detail
