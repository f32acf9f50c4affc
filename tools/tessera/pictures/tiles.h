// Shows which device holds which part of the arguments of a step, as text, JSON and pictures.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <tessera/jit.h>

namespace tessera::cli {

/// A leaf, and how many other leaves have the same type and sharding.
struct TiledLeaf {
  LeafPlacement leaf;
  std::int64_t others = 0;
};
/// The leaves whose path is or ends in one of `names`; all leaves if `names` is empty. Leaves with
/// the same type and sharding are listed once. Throws UserError for a name that no leaf has.
std::vector<TiledLeaf> tiled_leaves(const std::vector<LeafPlacement>& leaves,
                                    const std::vector<std::string>& names);

std::string tiles_text(const std::vector<TiledLeaf>& leaves);
nlohmann::json tiles_json(const std::vector<TiledLeaf>& leaves);
/// Writes a picture to a .png or .svg file. Throws UserError for another name and RuntimeFault if
/// the file cannot be written; messages begin with `flag`.
void draw_tiles(const std::vector<TiledLeaf>& leaves, const std::string& flag,
                const std::string& path);

}  // namespace tessera::cli
