// Shows the arguments of a step as a tree of modules with shapes, shardings and bytes, as text,
// JSON and a picture.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <tessera/jit.h>

namespace tessera::cli {

/// What lies below one part of the paths. Neighbouring modules that differ only in their names are
/// listed once.
struct ModuleTree {
  std::string name;
  std::int64_t count = 1;  // how many neighbouring modules this stands for
  std::string last = {};   // if there are several: the name of the last one
  std::vector<LeafPlacement> leaves = {};
  std::vector<ModuleTree> modules = {};
  std::int64_t bytes = 0;  // of one of them: of the whole arrays, and of the tiles of a device
  std::int64_t device_bytes = 0;
};
/// The modules of leaves, in their order.
ModuleTree module_tree(const std::vector<LeafPlacement>& leaves);

std::string modules_text(const ModuleTree& tree);
nlohmann::json modules_json(const ModuleTree& tree);
/// Writes a picture to a .png or .svg file. Throws UserError for another name and RuntimeFault if
/// the file cannot be written; messages begin with `flag`.
void draw_modules(const ModuleTree& tree, const std::string& flag, const std::string& path);

}  // namespace tessera::cli
