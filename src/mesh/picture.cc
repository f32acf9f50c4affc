#include "mesh/picture.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <vector>

namespace tessera {

namespace {

/// The approximate ratio of height to width of a character in a terminal.
constexpr double kCharacterHeight = 2.5;
constexpr double kPictureHeight = 10.0;

struct Cell {
  std::vector<std::int64_t> devices;
  std::size_t tile = 0;  // selects the colour
};

std::string repeated(const std::string& text, std::int64_t count) {
  std::string all;
  for (std::int64_t i = 0; i < count; ++i) all += text;
  return all;
}

std::string label_of(Cell cell, const std::string& device_kind) {
  std::sort(cell.devices.begin(), cell.devices.end());
  return fmt::format("{} {}", device_kind, fmt::join(cell.devices, ","));
}

/// `text` centred in `width` columns. An odd space goes to the right.
std::string centered(const std::string& text, std::int64_t width) {
  const std::int64_t rest =
      std::max<std::int64_t>(width - static_cast<std::int64_t>(text.size()), 0);
  return repeated(" ", rest / 2) + text + repeated(" ", rest - rest / 2);
}

std::string colored(const std::string& text, const Cell& cell, bool use_color) {
  if (!use_color) return text;
  // Black on light backgrounds; neighbours differ.
  constexpr int kBackgrounds[] = {152, 223, 157, 218, 189, 229, 195, 216};
  return fmt::format("\x1b[30;48;5;{}m{}\x1b[0m", kBackgrounds[cell.tile % 8], text);
}

/// One table of cells; all rows have the same columns.
class Picture {
 public:
  Picture(std::int64_t num_rows, std::int64_t num_columns, const VisualizeOptions& options)
      : options_(options),
        cells_(static_cast<std::size_t>(num_rows),
               std::vector<Cell>(static_cast<std::size_t>(num_columns))),
        heights_(cells_.size(), 1),
        widths_(static_cast<std::size_t>(num_columns), 0) {}

  Cell& at(std::int64_t row, std::int64_t column) {
    return cells_[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)];
  }
  /// `lines`: without the borders.
  void set_height(std::int64_t row, std::int64_t lines) {
    heights_[static_cast<std::size_t>(row)] = std::max<std::int64_t>(lines, 1);
  }
  /// `characters`: including both borders.
  void set_width(std::int64_t column, double characters) {
    const std::int64_t most = std::max(options_.max_width, options_.min_width);
    widths_[static_cast<std::size_t>(column)] =
        std::clamp(static_cast<std::int64_t>(std::min(characters, 1e6)), options_.min_width, most) -
        2;
  }

  std::string draw() {
    fit_widths();
    std::string text = rule("┌", "┬", "┐");
    for (std::size_t row = 0; row < cells_.size(); ++row) {
      if (row > 0) text += rule("├", "┼", "┤");
      for (std::int64_t line = 0; line < heights_[row]; ++line) {
        const bool is_middle = line == (heights_[row] - 1) / 2;
        for (std::size_t column = 0; column < widths_.size(); ++column) {
          const Cell& cell = cells_[row][column];
          const std::string label = is_middle ? label_of(cell, options_.device_kind) : "";
          text += "│" + colored(centered(label, widths_[column]), cell, options_.use_color);
        }
        text += "│\n";
      }
    }
    return text + rule("└", "┴", "┘");
  }

 private:
  /// Limits the columns to the width of the picture, but never cuts labels.
  void fit_widths() {
    const auto count = static_cast<std::int64_t>(widths_.size());
    std::int64_t spare = options_.max_width - count - 1;
    for (std::size_t column = 0; column < widths_.size(); ++column) {
      std::int64_t& width = widths_[column];
      width = std::min(width, spare / (count - static_cast<std::int64_t>(column)));
      for (const std::vector<Cell>& row : cells_) {
        const std::string label = label_of(row[column], options_.device_kind);
        width = std::max(width, static_cast<std::int64_t>(label.size()));
      }
      spare -= width;
    }
  }

  std::string rule(const char* left, const char* between, const char* right) const {
    std::string text = left;
    for (std::size_t column = 0; column < widths_.size(); ++column) {
      text += (column > 0 ? between : "") + repeated("─", widths_[column]);
    }
    return text + right + "\n";
  }

  const VisualizeOptions& options_;
  std::vector<std::vector<Cell>> cells_;
  std::vector<std::int64_t> heights_;
  std::vector<std::int64_t> widths_;
};

/// Which dimensions run down and across; -1 where there is none.
struct Axes {
  std::int64_t down = -1;
  std::int64_t across = -1;
};

Axes axes_of(const Layout& layout) {
  const auto rank = static_cast<std::int64_t>(layout.shape().size());
  if (rank == 0) return {};
  if (rank == 1) return {.down = -1, .across = 0};
  std::vector<std::int64_t> shown;
  for (std::int64_t dim = 0; dim < rank && rank > 2; ++dim) {
    if (layout.num_shards_of(static_cast<std::size_t>(dim)) > 1) shown.push_back(dim);
  }
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    if (std::find(shown.begin(), shown.end(), dim) == shown.end()) shown.push_back(dim);
  }
  return {.down = std::min(shown[0], shown[1]), .across = std::max(shown[0], shown[1])};
}

/// One picture for each combination of shards of the hidden dimensions.
class Pictures {
 public:
  Pictures(const Mesh& mesh, const Layout& layout, const VisualizeOptions& options)
      : mesh_(mesh), layout_(layout), options_(options), axes_(axes_of(layout)) {}

  std::string draw() {
    const std::size_t rank = layout_.shape().size();
    if (rank <= 2) return draw_slice({});
    std::string text;
    std::vector<std::int64_t> hidden(rank, 0);  // shard of each dimension
    while (true) {
      text += title(hidden) + draw_slice(hidden);
      std::size_t dim = rank;
      while (dim-- > 0) {
        if (is_shown(dim)) continue;
        if (++hidden[dim] < layout_.num_shards_of(dim)) break;
        hidden[dim] = 0;
      }
      if (dim == static_cast<std::size_t>(-1)) return text;
    }
  }

 private:
  bool is_shown(std::size_t dim) const {
    const auto number = static_cast<std::int64_t>(dim);
    return number == axes_.down || number == axes_.across;
  }
  std::int64_t size(std::int64_t dim) const {
    return dim < 0 ? 1 : layout_.shape()[static_cast<std::size_t>(dim)];
  }
  std::int64_t count(std::int64_t dim) const {
    return dim < 0 ? 1 : layout_.num_shards_of(static_cast<std::size_t>(dim));
  }
  /// The fraction of a dimension that a shard covers.
  double fraction(std::int64_t dim, std::int64_t shard) const {
    if (size(dim) == 0) return 1.0 / static_cast<double>(count(dim));
    const std::int64_t length =
        shard_start(shard + 1, count(dim), size(dim)) - shard_start(shard, count(dim), size(dim));
    return static_cast<double>(length) / static_cast<double>(size(dim));
  }

  /// `[down, 0:4, across, :] of [8,16,32,2]`.
  std::string title(const std::vector<std::int64_t>& hidden) const {
    std::vector<std::string> parts;
    for (std::size_t dim = 0; dim < hidden.size(); ++dim) {
      const auto number = static_cast<std::int64_t>(dim);
      const std::int64_t shards = count(number);
      if (number == axes_.down) {
        parts.emplace_back("down");
      } else if (number == axes_.across) {
        parts.emplace_back("across");
      } else if (shards == 1) {
        parts.emplace_back(":");
      } else {
        parts.push_back(fmt::format("{}:{}", shard_start(hidden[dim], shards, size(number)),
                                    shard_start(hidden[dim] + 1, shards, size(number))));
      }
    }
    return fmt::format("[{}] of {}\n", fmt::join(parts, ", "), to_string(layout_.shape()));
  }

  std::string draw_slice(const std::vector<std::int64_t>& hidden) const {
    Picture picture(count(axes_.down), count(axes_.across), options_);
    const std::vector<Atom> atoms = atoms_of(mesh_);
    std::int64_t position = 0;
    for (const std::int64_t device : mesh_.device_ids()) {
      const AtomDigits digits = position_digits(atoms, position++);
      if (!is_in_slice(digits, hidden)) continue;
      const std::int64_t row = shard(axes_.down, digits);
      const std::int64_t column = shard(axes_.across, digits);
      Cell& cell = picture.at(row, column);
      cell.devices.push_back(device);
      cell.tile = static_cast<std::size_t>(row + column);
    }
    set_sizes(picture);
    return picture.draw();
  }

  std::int64_t shard(std::int64_t dim, const AtomDigits& digits) const {
    return dim < 0 ? 0 : layout_.shard(static_cast<std::size_t>(dim), digits);
  }
  bool is_in_slice(const AtomDigits& digits, const std::vector<std::int64_t>& hidden) const {
    for (std::size_t dim = 0; dim < hidden.size(); ++dim) {
      if (!is_shown(dim) && layout_.shard(dim, digits) != hidden[dim]) return false;
    }
    return true;
  }

  void set_sizes(Picture& picture) const {
    // A row of one dimension is one line high, whatever its length.
    const double height = std::trunc(kPictureHeight * options_.scale);
    const double down = axes_.down < 0 ? 1.0 : static_cast<double>(size(axes_.down));
    const double across = axes_.across < 0 ? 0.0 : static_cast<double>(size(axes_.across));
    // As in JAX, the picture has the aspect ratio of the matrix. An array of rank 1 is drawn as
    // wide as a column would be high.
    const bool is_line = axes_.down < 0 && axes_.across >= 0;
    const double aspect = is_line ? 1.0 / std::max(across, 1.0) : across / std::max(down, 1.0);
    const double width = std::trunc(height * aspect) * kCharacterHeight;
    for (std::int64_t row = 0; row < count(axes_.down); ++row) {
      const double lines = std::trunc(fraction(axes_.down, row) * height);
      picture.set_height(row, axes_.down < 0 ? 1 : static_cast<std::int64_t>(lines) - 1);
    }
    for (std::int64_t column = 0; column < count(axes_.across); ++column) {
      picture.set_width(column, std::trunc(fraction(axes_.across, column) * width));
    }
  }

  const Mesh& mesh_;
  const Layout& layout_;
  const VisualizeOptions& options_;
  const Axes axes_;
};

}  // namespace

std::string picture_of(const Mesh& mesh, const Layout& layout, const VisualizeOptions& options) {
  return Pictures(mesh, layout, options).draw();
}

}  // namespace tessera
