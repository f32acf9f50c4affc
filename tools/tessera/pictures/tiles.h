// Which device holds which part of the arguments of a step, as text, JSON and pictures.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <tessera/jit.h>

namespace tessera::cli {

/// A leaf, and how many others have its shape and sharding.
struct TiledLeaf {
  LeafPlacement leaf;
  std::int64_t others = 0;
};
/// Those whose path is or ends in one of `names`, all of them when there is none; leaves that look
/// alike are one. Throws UserError for a name that fits none.
std::vector<TiledLeaf> tiled_leaves(const std::vector<LeafPlacement>& leaves,
                                    const std::vector<std::string>& names);

std::string tiles_text(const std::vector<TiledLeaf>& leaves);
nlohmann::json tiles_json(const std::vector<TiledLeaf>& leaves);
/// As a .png or .svg file, named by `flag` in errors; throws UserError and RuntimeFault.
void draw_tiles(const std::vector<TiledLeaf>& leaves, const std::string& flag,
                const std::string& path);

}  // namespace tessera::cli
