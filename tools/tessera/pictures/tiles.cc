#include "tiles.h"

#include <algorithm>
#include <map>

#include <tessera/error.h>

#include "tools/tessera/pictures/picture.h"

namespace tessera::cli {

using nlohmann::json;

namespace {

bool is_named(const std::string& path, const std::string& name) {
  return path == name || path.ends_with("/" + name);
}

std::string others_text(const TiledLeaf& leaf) {
  return leaf.others == 0 ? "" : ", and " + std::to_string(leaf.others) + " more like it";
}

std::string type_text(const LeafPlacement& leaf) {
  return std::string(name(leaf.type.dtype)) + to_string(leaf.type.shape);
}

/// A tile, given by its index ranges, and the devices that hold it.
using Index = std::vector<IndexRange>;
struct Tile {
  Index index;
  std::vector<std::int64_t> devices;  // sorted
};

std::vector<Tile> tiles_of(const LeafPlacement& leaf) {
  std::vector<Tile> tiles;
  for (const DeviceIndices& one : leaf.sharding.devices_indices_map(leaf.type.shape)) {
    const auto same = std::find_if(tiles.begin(), tiles.end(),
                                   [&](const Tile& t) { return t.index == one.index; });
    if (same == tiles.end()) {
      tiles.push_back({.index = one.index, .devices = {one.device}});
    } else {
      same->devices.push_back(one.device);
    }
  }
  for (Tile& tile : tiles) std::sort(tile.devices.begin(), tile.devices.end());
  return tiles;
}

std::string devices_text(const Tile& tile) {
  std::string text;
  for (const std::int64_t device : tile.devices) {
    text += (text.empty() ? "CPU " : ",") + std::to_string(device);
  }
  return text;
}

}  // namespace

std::vector<TiledLeaf> tiled_leaves(const std::vector<LeafPlacement>& leaves,
                                    const std::vector<std::string>& names) {
  std::vector<TiledLeaf> chosen;
  const auto add = [&](const LeafPlacement& leaf) {
    for (TiledLeaf& known : chosen) {
      const bool is_alike = known.leaf.type == leaf.type && known.leaf.sharding == leaf.sharding;
      if (is_alike) {
        ++known.others;
        return;
      }
    }
    chosen.push_back({.leaf = leaf});
  };
  if (names.empty()) std::for_each(leaves.begin(), leaves.end(), add);
  for (const std::string& name : names) {
    bool is_found = false;
    for (const LeafPlacement& leaf : leaves) {
      if (!is_named(leaf.path, name)) continue;
      is_found = true;
      add(leaf);
    }
    if (is_found) continue;
    throw UserError({.what = "--leaf: the step has no argument of this name",
                     .found = name,
                     .wanted = "a path that --what sharding lists, or the end of one",
                     .cure = "write for example --leaf " + leaves.front().path});
  }
  return chosen;
}

std::string tiles_text(const std::vector<TiledLeaf>& leaves) {
  std::string text;
  for (const TiledLeaf& one : leaves) {
    const LeafPlacement& leaf = one.leaf;
    if (!text.empty()) text += "---------------------------\n";
    text += leaf.path + "  " + type_text(leaf) + others_text(one) + "\n" +
            to_string(leaf.sharding) + "\n" +
            visualize_sharding(leaf.type.shape, leaf.sharding, {}, std::source_location());
  }
  return text;
}

json tiles_json(const std::vector<TiledLeaf>& leaves) {
  json list = json::array();
  for (const TiledLeaf& one : leaves) {
    json tiles = json::array();
    for (const Tile& tile : tiles_of(one.leaf)) {
      json index = json::array();
      for (const IndexRange& range : tile.index) index.push_back({range.start, range.limit});
      tiles.push_back({{"devices", tile.devices}, {"index", index}});
    }
    list.push_back({{"path", one.leaf.path},
                    {"dtype", name(one.leaf.type.dtype)},
                    {"shape", one.leaf.type.shape},
                    {"mesh", to_string(one.leaf.sharding.mesh)},
                    {"spec", to_string(one.leaf.sharding.spec)},
                    {"others", one.others},
                    {"tiles", std::move(tiles)}});
  }
  return list;
}

namespace {

constexpr double kMargin = 24;
constexpr double kTileFont = 14;
constexpr double kLine = 22;
constexpr double kWidest = 640;
constexpr double kStripHeight = 56;
constexpr double kPanelHeight = 224;

/// The tiles that have the same ranges in the dimensions that are not drawn.
struct Panel {
  std::string title;
  std::vector<Tile> tiles;
};

/// The drawing of a leaf: panels of one size, one below the other.
struct Block {
  std::vector<std::string> lines;
  std::vector<Panel> panels;
  std::optional<std::size_t> down, across;  // the dimensions that are drawn
  double width = kWidest, height = kStripHeight;

  double total_height() const {
    double sum = kLine * static_cast<double>(lines.size());
    for (const Panel& panel : panels) sum += (panel.title.empty() ? 0 : kLine) + height + 12;
    return sum + kMargin;
  }
};

/// Chooses at most two dimensions to draw: split dimensions before others, then the first ones.
void choose_dimensions(const LeafPlacement& leaf, Block& block) {
  const Shape& shape = leaf.type.shape;
  if (shape.empty()) return;
  std::vector<std::size_t> shown;
  for (const bool split : {true, false}) {
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      const bool is_split = leaf.local_shape[dim] != shape[dim];
      if (is_split == split && shown.size() < 2) shown.push_back(dim);
    }
  }
  std::sort(shown.begin(), shown.end());
  block.across = shown.back();
  if (shown.size() < 2) return;
  block.down = shown.front();
  const double ratio = static_cast<double>(shape[*block.across]) /
                       static_cast<double>(std::max<std::int64_t>(shape[*block.down], 1));
  block.height = kPanelHeight;
  block.width = std::clamp(kPanelHeight * ratio, kPanelHeight, kWidest);
}

Block block_of(const TiledLeaf& one) {
  Block block;
  const LeafPlacement& leaf = one.leaf;
  block.lines = {leaf.path + others_text(one), type_text(leaf) + "  " +
                                                   to_string(leaf.sharding.spec) + " on " +
                                                   to_string(leaf.sharding.mesh)};
  choose_dimensions(leaf, block);
  std::map<std::string, std::size_t> numbers;  // of panels
  for (Tile& tile : tiles_of(leaf)) {
    std::string title;
    for (std::size_t dim = 0; dim < tile.index.size(); ++dim) {
      const bool is_hidden = dim != block.down && dim != block.across;
      const bool is_split = leaf.local_shape[dim] != leaf.type.shape[dim];
      if (!is_hidden || !is_split) continue;
      title += (title.empty() ? "" : ", ") + ("dimension " + std::to_string(dim)) + ": " +
               std::to_string(tile.index[dim].start) + " to " +
               std::to_string(tile.index[dim].limit);
    }
    const auto [at, is_new] = numbers.try_emplace(title, block.panels.size());
    if (is_new) block.panels.push_back({.title = title, .tiles = {}});
    block.panels[at->second].tiles.push_back(std::move(tile));
  }
  return block;
}

/// The range of a tile in a dimension, scaled to [0, 1).
std::pair<double, double> extent_of(const Tile& tile, const std::optional<std::size_t>& dim,
                                    const Shape& shape) {
  if (!dim || shape[*dim] == 0) return {0, 1};
  const auto size = static_cast<double>(shape[*dim]);
  return {static_cast<double>(tile.index[*dim].start) / size,
          static_cast<double>(tile.index[*dim].limit) / size};
}

void draw_panel(Picture& picture, const Panel& panel, const Block& block, const Shape& shape,
                double top) {
  for (std::size_t i = 0; i < panel.tiles.size(); ++i) {
    const Tile& tile = panel.tiles[i];
    const auto [left, right] = extent_of(tile, block.across, shape);
    const auto [high, low] = extent_of(tile, block.down, shape);
    const double width = (right - left) * block.width;
    const double height = (low - high) * block.height;
    const Point corner{kMargin + left * block.width, top + high * block.height};
    picture.rectangle(corner, width, height, lighter(color_of(i)), true);
    const std::string label = devices_text(tile);
    double font = kTileFont;
    while (font > 6 && (picture.text_width(font, label) > width - 6 || font > height - 4))
      font -= 1;
    picture.text(corner.x + width / 2, corner.y + height / 2 + font / 3, font, label);
  }
}

}  // namespace

void draw_tiles(const std::vector<TiledLeaf>& leaves, const std::string& flag,
                const std::string& path) {
  std::vector<Block> blocks;
  double height = kMargin;
  for (const TiledLeaf& leaf : leaves) {
    blocks.push_back(block_of(leaf));
    height += blocks.back().total_height();
  }
  Picture picture(flag, path, kWidest + 2 * kMargin, height);
  double y = kMargin;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const std::string& line : blocks[i].lines) {
      picture.text(kMargin, y + kTileFont, kTileFont, line, Align::left);
      y += kLine;
    }
    for (const Panel& panel : blocks[i].panels) {
      if (!panel.title.empty()) {
        picture.text(kMargin, y + kTileFont, kTileFont, panel.title, Align::left);
        y += kLine;
      }
      draw_panel(picture, panel, blocks[i], leaves[i].leaf.type.shape, y);
      y += blocks[i].height + 12;
    }
    y += kMargin;
  }
  picture.write();
}

}  // namespace tessera::cli
