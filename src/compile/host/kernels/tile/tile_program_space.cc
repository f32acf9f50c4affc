// Iteration spaces of tile programs.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "compile/host/kernels/tile/tile_program_internal.h"

namespace tessera::kernels::tiles {

namespace {

// The dimensions before they are split into rows and columns. Every linear function has all its
// strides in `strides`.
struct Dims {
  std::vector<std::int64_t> extents;
  std::vector<Linear*> linears;

  void remove(std::size_t d) {
    const auto at = static_cast<std::ptrdiff_t>(d);
    extents.erase(extents.begin() + at);
    for (Linear* linear : linears) linear->strides.erase(linear->strides.begin() + at);
  }
  // Moves dimension d to the position just before the last.
  void move_before_last(std::size_t d) {
    const auto rotate = [d](std::vector<std::int64_t>& v) {
      std::rotate(v.begin() + static_cast<std::ptrdiff_t>(d),
                  v.begin() + static_cast<std::ptrdiff_t>(d) + 1, v.end() - 1);
    };
    rotate(extents);
    for (Linear* linear : linears) rotate(linear->strides);
  }
  bool can_merge_with_next(std::size_t d) const {
    return std::all_of(linears.begin(), linears.end(), [&](const Linear* linear) {
      return linear->strides[d] == linear->strides[d + 1] * extents[d + 1];
    });
  }
};

bool lies_across(const Linear& linear) {
  return !linear.strides.empty() && std::abs(linear.strides.back()) > 1;
}

// The dimension along which some memory that is not contiguous along the last dimension has its
// smallest stride. Returns the number of dimensions if there is none.
std::size_t crossing_dimension(const Dims& dims, std::span<Linear* const> memory) {
  const std::size_t rank = dims.extents.size();
  for (const Linear* linear : memory) {
    if (!lies_across(*linear)) continue;
    std::size_t best = rank;
    std::int64_t closest = std::abs(linear->strides.back());
    for (std::size_t d = 0; d + 1 < rank; ++d) {
      const std::int64_t stride = std::abs(linear->strides[d]);
      if (stride == 0 || stride >= closest) continue;
      closest = stride;
      best = d;
    }
    if (best != rank) return best;
  }
  return rank;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

void choose_tiles(Space& space, bool crosses, bool keeps_rows) {
  constexpr std::int64_t kRectangleColumns = 64;
  constexpr std::int64_t kRectangleSize = 2048;
  if (crosses && space.columns > kRectangleColumns && space.rows > 1) {
    // Few cache lines, so that they stay cached, and runs that are long enough in both directions.
    space.tile_columns = kRectangleColumns;
    space.tile_rows = std::min(space.rows, kRectangleSize / kRectangleColumns);
  } else if (space.columns > kTileSize && !keeps_rows) {
    // Parts of about the same size, with as many whole vectors as possible.
    const std::int64_t parts = ceil_div(space.columns, kTileSize);
    space.tile_columns = ceil_div(ceil_div(space.columns, parts), 16) * 16;
  } else {
    space.tile_columns = space.columns;
    space.tile_rows = std::min(space.rows, std::max<std::int64_t>(kTileSize / space.columns, 1));
  }
  space.column_blocks = ceil_div(space.columns, space.tile_columns);
  space.num_tiles = ceil_div(space.rows, space.tile_rows) * space.column_blocks;
}

void finish(Linear& linear, const Space& space) {
  linear.column_stride = linear.strides.back();
  linear.strides.pop_back();
  if (linear.column_stride == 1) linear.rows_in_run = 1;
  if (linear.column_stride == 0) linear.rows_alike = 1;
  std::int64_t length = space.columns;
  bool is_run = linear.column_stride == 1;
  bool is_alike = linear.column_stride == 0;
  for (std::size_t d = space.extents.size(); d-- > 0;) {
    is_run = is_run && linear.strides[d] == length;
    is_alike = is_alike && linear.strides[d] == 0;
    length *= space.extents[d];
    if (is_run) linear.rows_in_run *= space.extents[d];
    if (is_alike) linear.rows_alike *= space.extents[d];
  }
}

}  // namespace

bool Linear::depends_on_row() const {
  return std::any_of(strides.begin(), strides.end(), [](std::int64_t s) { return s != 0; });
}

bool Space::always_run(const Linear& linear) const {
  if (tile_rows == 1) return linear.rows_in_run > 0;
  return tiles_are_whole_rows() && linear.rows_in_run == rows;
}

bool Space::always_alike(const Linear& linear) const {
  return tile_rows == 1 ? linear.rows_alike > 0 : linear.rows_alike == rows;
}

bool Space::rows_are_dense(const Linear& linear) const {
  std::int64_t length = 1;
  for (std::size_t d = extents.size(); d-- > 0; length *= extents[d]) {
    if (linear.strides[d] != length) return false;
  }
  return true;
}

Space make_space(const Shape& extents, std::span<Linear* const> memory,
                 std::span<Linear* const> counters, bool keeps_rows) {
  Dims dims{extents, {memory.begin(), memory.end()}};
  dims.linears.insert(dims.linears.end(), counters.begin(), counters.end());
  const std::size_t kept = keeps_rows ? 1 : 0;
  for (std::size_t d = dims.extents.size() - kept; d-- > 0;) {
    if (dims.extents[d] == 1) dims.remove(d);
  }
  const std::size_t crossing = crossing_dimension(dims, memory);
  const bool crosses = !keeps_rows && crossing < dims.extents.size();
  if (crosses) dims.move_before_last(crossing);
  for (std::size_t d = dims.extents.size() - kept; d-- > 1;) {
    if (!dims.can_merge_with_next(d - 1)) continue;
    dims.extents[d] *= dims.extents[d - 1];
    dims.remove(d - 1);
  }
  if (dims.extents.empty()) {  // a single element is a run of any access
    dims.extents.push_back(1);
    for (Linear* linear : dims.linears) linear->strides.push_back(1);
  }
  Space space;
  space.columns = dims.extents.back();
  dims.extents.pop_back();
  space.extents = std::move(dims.extents);
  space.rows = std::accumulate(space.extents.begin(), space.extents.end(), std::int64_t{1},
                               std::multiplies<>());
  for (Linear* linear : dims.linears) finish(*linear, space);
  if (space.rows > 0 && space.columns > 0) choose_tiles(space, crosses, keeps_rows);
  return space;
}

namespace {

Index index_of_row(const Space& space, std::int64_t row) {
  Index index;
  for (std::size_t d = space.extents.size(); d-- > 1;) {
    index[d] = row % space.extents[d];
    row /= space.extents[d];
  }
  index[0] = row;
  return index;
}

}  // namespace

Tile tile_at(const Space& space, std::int64_t number) {
  const std::int64_t row = number / space.column_blocks * space.tile_rows;
  const std::int64_t column = number % space.column_blocks * space.tile_columns;
  return {.row = row,
          .rows = std::min(space.tile_rows, space.rows - row),
          .column = column,
          .columns = std::min(space.tile_columns, space.columns - column),
          .index = index_of_row(space, row)};
}

Tile tile_of_rows(const Space& space, std::int64_t row, std::int64_t rows) {
  return {.row = row,
          .rows = rows,
          .column = 0,
          .columns = space.columns,
          .index = index_of_row(space, row)};
}

Form form_of(const Space& space, const Linear& linear, const Tile& tile) {
  const auto in_one_group = [&](std::int64_t group) {
    return group > 0 && (tile.rows == 1 || tile.row / group == (tile.row + tile.rows - 1) / group);
  };
  if (in_one_group(linear.rows_alike)) return Form::alike;
  if ((tile.rows == 1 || space.tiles_are_whole_rows()) && in_one_group(linear.rows_in_run))
    return Form::run;
  return Form::rows;
}

std::int64_t start_of(const Linear& linear, const Tile& tile) {
  std::int64_t start = linear.offset + tile.column * linear.column_stride;
  for (std::size_t d = 0; d < linear.strides.size(); ++d)
    start += tile.index[d] * linear.strides[d];
  return start;
}

void row_starts(const Space& space, const Linear& linear, const Tile& tile, std::int64_t* starts) {
  Index index = tile.index;
  std::int64_t start = start_of(linear, tile);
  if (space.extents.empty()) {
    starts[0] = start;
    return;
  }
  const std::size_t last = space.extents.size() - 1;
  for (std::int64_t r = 0; r < tile.rows;) {
    // Rows along the innermost dimension.
    const std::int64_t end = std::min(tile.rows, r + space.extents[last] - index[last]);
    for (const std::int64_t step = linear.strides[last]; r < end; ++r, start += step)
      starts[r] = start;
    start -= linear.strides[last] * space.extents[last];
    index[last] = 0;
    for (std::size_t d = last; d-- > 0;) {
      start += linear.strides[d];
      if (++index[d] < space.extents[d]) break;
      start -= linear.strides[d] * space.extents[d];
      index[d] = 0;
    }
  }
}

}  // namespace tessera::kernels::tiles
