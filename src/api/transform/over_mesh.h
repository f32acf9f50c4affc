// Functions of tiles of imported programs.
#pragma once

#include <vector>

#include "stablehlo/import/import.h"

namespace tessera::detail {

/// As shard_map maps a function: see stablehlo::MapTiles. A result that differs along an axis that
/// its spec does not name is that of the first device.
std::vector<ir::ValueId> map_tiles(ir::Builder& b, const Mesh& mesh, stablehlo::ManualBody body,
                                   const std::vector<ir::ValueId>& operands);

}  // namespace tessera::detail
