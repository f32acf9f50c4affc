// Which elements of an array the windows of an op meet, dimension by dimension.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::compile::host {

/// One dimension of a tile: element q of window p meets row (p * stride + q * dilation - low) /
/// spread of the array. Windows and rows are counted from the start of their tile.
struct SpaceDim {
  std::int64_t stride = 1, dilation = 1, spread = 1, low = 0;
  std::int64_t windows = 1, size = 1, rows = 1;

  /// Empty if there is no such row.
  std::optional<std::int64_t> row(std::int64_t p, std::int64_t q) const {
    const std::int64_t place = p * stride + q * dilation - low;
    if (place < 0 || place % spread != 0 || place / spread >= rows) return std::nullopt;
    return place / spread;
  }
};

/// Windows that meet rows with the same subset of their elements.
struct WindowClass {
  std::vector<std::int64_t> windows;
  std::vector<std::int64_t> rows;      // per window: the row that its first element meets
  std::vector<std::int64_t> elements;  // of the window
  std::vector<std::int64_t> steps;     // per element: how many rows after the first element
};

/// Without padding and spreading there is just one class. Otherwise, windows at the borders and
/// windows that differ in phase have classes of their own.
std::vector<WindowClass> classes_of(const SpaceDim& dim);

}  // namespace tessera::compile::host
