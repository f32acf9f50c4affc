#include "modules.h"

#include <algorithm>

#include "tools/cli/size_text.h"
#include "tools/tessera/pictures/picture.h"

namespace tessera::cli {

using nlohmann::json;

namespace {

std::int64_t bytes_of(DType dtype, const Shape& shape) {
  return static_cast<std::int64_t>(size_bytes(dtype)) * num_elements(shape);
}

/// The part of a path at some depth, and whether it is the last part.
struct Part {
  std::string name;
  bool is_last;
};
Part part_at(const std::string& path, std::size_t depth) {
  std::size_t begin = 0;
  for (; depth > 0; --depth) begin = path.find('/', begin) + 1;
  const std::size_t end = path.find('/', begin);
  return {path.substr(begin, end - begin), end == std::string::npos};
}

bool are_alike(const ModuleTree& a, const ModuleTree& b);

bool are_alike(const std::vector<ModuleTree>& a, const std::vector<ModuleTree>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.name == y.name && x.count == y.count && are_alike(x, y);
  });
}

/// Whether two modules have the same parts. Their own names may differ.
bool are_alike(const ModuleTree& a, const ModuleTree& b) {
  const auto end_of = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  const auto is_same = [&](const LeafPlacement& x, const LeafPlacement& y) {
    return end_of(x.path) == end_of(y.path) && x.type == y.type && x.sharding == y.sharding;
  };
  return are_alike(a.modules, b.modules) &&
         std::equal(a.leaves.begin(), a.leaves.end(), b.leaves.begin(), b.leaves.end(), is_same);
}

void join_alike(std::vector<ModuleTree>& modules) {
  std::vector<ModuleTree> joined;
  for (ModuleTree& module : modules) {
    if (!joined.empty() && are_alike(joined.back(), module)) {
      ++joined.back().count;
      joined.back().last = module.name;
    } else {
      joined.push_back(std::move(module));
    }
  }
  modules = std::move(joined);
}

ModuleTree tree_of(std::string name, const std::vector<LeafPlacement>& leaves, std::size_t depth) {
  ModuleTree tree{.name = std::move(name)};
  std::vector<std::pair<std::string, std::vector<LeafPlacement>>> below;
  for (const LeafPlacement& leaf : leaves) {
    tree.bytes += bytes_of(leaf.type.dtype, leaf.type.shape);
    tree.device_bytes += bytes_of(leaf.type.dtype, leaf.local_shape);
    const Part part = part_at(leaf.path, depth);
    if (part.is_last) {
      tree.leaves.push_back(leaf);
      continue;
    }
    const auto known = std::find_if(below.begin(), below.end(),
                                    [&](const auto& item) { return item.first == part.name; });
    if (known != below.end()) {
      known->second.push_back(leaf);
    } else {
      below.push_back({part.name, {leaf}});
    }
  }
  for (const auto& [inner, inside] : below) {
    tree.modules.push_back(tree_of(inner, inside, depth + 1));
  }
  join_alike(tree.modules);
  return tree;
}

std::string bytes_text(std::int64_t bytes, std::int64_t device_bytes) {
  return bytes == device_bytes ? size_text(bytes)
                               : size_text(bytes) + ", " + size_text(device_bytes) + " per device";
}

std::string title_of(const ModuleTree& tree) {
  std::string name = tree.name;
  if (tree.count > 1) {
    name += " to " + tree.last + ", " + std::to_string(tree.count) + " times";
  }
  return name;
}

std::string leaf_name(const LeafPlacement& leaf) {
  return leaf.path.substr(leaf.path.rfind('/') + 1);
}

/// `f32[768,3072] P(None, 'model')`
std::string leaf_text(const LeafPlacement& leaf) {
  return to_string(leaf.type) + " " + to_string(leaf.sharding.spec);
}

std::string leaf_bytes(const LeafPlacement& leaf) {
  return bytes_text(bytes_of(leaf.type.dtype, leaf.type.shape),
                    bytes_of(leaf.type.dtype, leaf.local_shape));
}

void append_text(const ModuleTree& tree, std::size_t depth, std::string& text) {
  const std::string indent(2 * depth, ' ');
  for (const LeafPlacement& leaf : tree.leaves) {
    text += indent + leaf_name(leaf) + "  " + leaf_text(leaf) + "  " + leaf_bytes(leaf) + "\n";
  }
  for (const ModuleTree& module : tree.modules) {
    text += indent + title_of(module) + "  " + bytes_text(module.bytes, module.device_bytes) + "\n";
    append_text(module, depth + 1, text);
  }
}

/// Draws modules as boxes in boxes, one below the other.
class Drawing {
 public:
  explicit Drawing(Picture& page) : page_(page) {}

  static double height_of(const ModuleTree& tree) {
    double height = kLine * (1 + static_cast<double>(tree.leaves.size())) + kGap;
    for (const ModuleTree& module : tree.modules) height += height_of(module) + kGap;
    return height;
  }
  /// The width that the texts of the tree need.
  double width_of(const ModuleTree& tree) {
    double width = page_.text_width(kSize, title_of(tree)) +
                   page_.text_width(kSize, bytes_text(tree.bytes, tree.device_bytes)) + kBetween;
    for (const LeafPlacement& leaf : tree.leaves) {
      width = std::max(width, kName + page_.text_width(kSize, leaf_text(leaf)) + kBetween +
                                  page_.text_width(kSize, leaf_bytes(leaf)));
    }
    for (const ModuleTree& module : tree.modules) width = std::max(width, width_of(module));
    return width + 2 * kGap;
  }

  void draw(const ModuleTree& tree, Point corner, double width, std::size_t depth) {
    page_.rectangle(corner, width, height_of(tree), shade(depth), true);
    const double left = corner.x + kGap;
    const double right = corner.x + width - kGap;
    double y = corner.y + kLine;
    page_.text(left, y, kSize, title_of(tree), Align::left);
    page_.text(right, y, kSize, bytes_text(tree.bytes, tree.device_bytes), Align::right);
    for (const LeafPlacement& leaf : tree.leaves) {
      y += kLine;
      page_.text(left + kGap, y, kSize, leaf_name(leaf), Align::left);
      page_.text(left + kName, y, kSize, leaf_text(leaf), Align::left);
      page_.text(right, y, kSize, leaf_bytes(leaf), Align::right);
    }
    y += kGap;
    for (const ModuleTree& module : tree.modules) {
      draw(module, {left, y}, width - 2 * kGap, depth + 1);
      y += height_of(module) + kGap;
    }
  }

 private:
  static constexpr double kSize = 12;
  static constexpr double kLine = 17;
  static constexpr double kGap = 8;
  static constexpr double kName = 110;    // of the column with names of leaves
  static constexpr double kBetween = 30;  // columns

  static Color shade(std::size_t depth) {
    return depth == 0 ? Color{1, 1, 1} : lighter(lighter(color_of(depth - 1)));
  }

  Picture& page_;
};

}  // namespace

ModuleTree module_tree(const std::vector<LeafPlacement>& leaves) {
  return tree_of("arguments", leaves, 0);
}

std::string modules_text(const ModuleTree& tree) {
  std::string text = tree.name + "  " + bytes_text(tree.bytes, tree.device_bytes) + "\n";
  append_text(tree, 1, text);
  return text;
}

json modules_json(const ModuleTree& tree) {
  json object = {{"name", tree.name},       {"count", tree.count},
                 {"bytes", tree.bytes},     {"device_bytes", tree.device_bytes},
                 {"leaves", json::array()}, {"modules", json::array()}};
  for (const LeafPlacement& leaf : tree.leaves) {
    object["leaves"].push_back({{"path", leaf.path},
                                {"dtype", name(leaf.type.dtype)},
                                {"shape", leaf.type.shape},
                                {"spec", to_string(leaf.sharding.spec)},
                                {"local_shape", leaf.local_shape}});
  }
  for (const ModuleTree& module : tree.modules) object["modules"].push_back(modules_json(module));
  return object;
}

void draw_modules(const ModuleTree& tree, const std::string& flag, const std::string& path) {
  constexpr double kMargin = 10;
  double width = 0;
  {
    Picture probe(flag, path, 1, 1);
    width = Drawing(probe).width_of(tree);
  }
  Picture page(flag, path, width + 2 * kMargin, Drawing::height_of(tree) + 2 * kMargin);
  Drawing(page).draw(tree, {kMargin, kMargin}, width, 0);
  page.write();
}

}  // namespace tessera::cli
