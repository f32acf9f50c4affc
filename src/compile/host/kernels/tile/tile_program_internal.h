// The iteration space of a tile program, seen as rows and columns, and memory accesses along it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <tessera/types.h>

namespace tessera::kernels::tiles {

/// The most elements of a tile, unless a single row is longer. The few registers that are kept for
/// a whole tile then stay in L1.
inline constexpr std::int64_t kTileSize = 2048;
inline constexpr std::size_t kMaxDims = 16;
using Index = std::array<std::int64_t, kMaxDims>;

/// offset + sum(i_d * strides_d): the position of an element in memory, or the value of a counter.
struct Linear {
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;  // of the dimensions of rows, outermost first
  std::int64_t column_stride = 0;
  // Aligned groups of this many rows are contiguous (rows_in_run) or consist of one repeated
  // element (rows_alike). 0: not even a single row does.
  std::int64_t rows_in_run = 0;
  std::int64_t rows_alike = 0;

  bool depends_on_row() const;
};

/// The iteration space, cut into tiles: whole rows, parts of a row, or small rectangles.
struct Space {
  std::vector<std::int64_t> extents;  // of the dimensions of rows, outermost first
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t tile_rows = 1;
  std::int64_t tile_columns = 1;
  std::int64_t column_blocks = 1;
  std::int64_t num_tiles = 0;

  bool tiles_are_whole_rows() const { return column_blocks == 1; }
  /// Whether `linear` is a contiguous run in every tile.
  bool always_run(const Linear& linear) const;
  bool always_alike(const Linear& linear) const;
  /// Whether an access with one element per row is contiguous.
  bool rows_are_dense(const Linear& linear) const;
};

/// Splits dense row-major extents into rows and columns. `memory` are memory accesses, `counters`
/// other linear functions of the index; on entry each has one stride per extent. Dimensions are
/// merged if that is possible for all of them. They are reordered if some memory is contiguous
/// across rows instead of along them. With `keeps_rows`, the last dimension stays the columns, and
/// tiles are whole rows.
Space make_space(const Shape& extents, std::span<Linear* const> memory,
                 std::span<Linear* const> counters, bool keeps_rows);

struct Tile {
  std::int64_t row;
  std::int64_t rows;
  std::int64_t column;
  std::int64_t columns;
  Index index;  // of its first row

  std::int64_t size() const { return rows * columns; }
};
Tile tile_at(const Space& space, std::int64_t number);
/// Whole rows, of a space whose tiles are whole rows.
Tile tile_of_rows(const Space& space, std::int64_t row, std::int64_t rows);

enum class Form : std::uint8_t { run, alike, rows };
Form form_of(const Space& space, const Linear& linear, const Tile& tile);
/// The value of `linear` at the first element of `tile`.
std::int64_t start_of(const Linear& linear, const Tile& tile);
/// The values of `linear` at the first element of each row.
void row_starts(const Space& space, const Linear& linear, const Tile& tile, std::int64_t* starts);

/// Memory that is copied to or from a dense tile. Rows begin at element `starts[r]`; columns are
/// `stride` elements apart.
struct Rows {
  std::size_t element_bytes;
  const std::int64_t* starts;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;
};
void load_rows(const Rows& rows, const std::byte* from, std::byte* tile);
void store_rows(const Rows& rows, const std::byte* tile, std::byte* to);
/// Writes the value of each row `columns` times, row after row.
void fill_rows(std::size_t element_bytes, const std::byte* values, std::int64_t rows,
               std::int64_t columns, std::byte* to);
/// Writes `value` n times.
inline void fill(std::size_t element_bytes, const std::byte* value, std::byte* to, std::int64_t n) {
  fill_rows(element_bytes, value, 1, n, to);
}
/// memcpy for lengths that are mostly those of one or two elements.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == sizeof(std::uint32_t)) {
    std::memcpy(to, from, sizeof(std::uint32_t));
  } else if (bytes == sizeof(std::uint64_t)) {
    std::memcpy(to, from, sizeof(std::uint64_t));
  } else {
    std::memcpy(to, from, bytes);
  }
}
/// Writes start, start + stride, ... as `dtype`.
void fill_iota(DType dtype, std::int64_t start, std::int64_t stride, std::byte* to, std::int64_t n);
/// Random bits at the indices start, start + stride, ...
void fill_random(const std::uint32_t* key, std::int64_t start, std::int64_t stride,
                 std::uint32_t* to, std::int64_t n);

}  // namespace tessera::kernels::tiles
