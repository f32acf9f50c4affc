// Copies rows between memory and dense tiles.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "compile/host/kernels/tile/tile_program_internal.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::kernels::tiles {

namespace {

// Whether rows are adjacent in memory while columns are far apart. Such tiles are read in blocks,
// so that each cache line is used completely while it is cached.
bool is_transposed(const Rows& rows) {
  return rows.rows > 1 && std::abs(rows.stride) > 1 &&
         std::abs(rows.starts[1] - rows.starts[0]) < std::abs(rows.stride);
}

// Whether rows r to r + 3 are adjacent in memory.
bool are_neighbours(const Rows& rows, std::int64_t r) {
  const std::int64_t* starts = rows.starts + r;
  return starts[1] == starts[0] + 1 && starts[2] == starts[0] + 2 && starts[3] == starts[0] + 3;
}

// to[i * to_stride + k] = from[k * from_stride + i] for i, k < 4
template <class T>
void transpose_4x4(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride) {
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t k = 0; k < 4; ++k) to[i * to_stride + k] = from[k * from_stride + i];
  }
}

void transpose_4x4(const std::uint32_t* from, std::int64_t from_stride, std::uint32_t* to,
                   std::int64_t to_stride) {
  using Vector [[gnu::vector_size(16)]] = std::uint32_t;
  Vector v[4];
  for (std::int64_t k = 0; k < 4; ++k) std::memcpy(&v[k], from + k * from_stride, sizeof(Vector));
  const Vector low02 = __builtin_shufflevector(v[0], v[2], 0, 4, 1, 5);
  const Vector low13 = __builtin_shufflevector(v[1], v[3], 0, 4, 1, 5);
  const Vector high02 = __builtin_shufflevector(v[0], v[2], 2, 6, 3, 7);
  const Vector high13 = __builtin_shufflevector(v[1], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(low02, low13, 0, 4, 1, 5);
  v[1] = __builtin_shufflevector(low02, low13, 2, 6, 3, 7);
  v[2] = __builtin_shufflevector(high02, high13, 0, 4, 1, 5);
  v[3] = __builtin_shufflevector(high02, high13, 2, 6, 3, 7);
  for (std::int64_t i = 0; i < 4; ++i) std::memcpy(to + i * to_stride, &v[i], sizeof(Vector));
}

// Calls block(r, c) for blocks of 4 x 4 whose rows are adjacent, and element(r, c) for all others.
template <class Block, class Element>
void for_each_block(const Rows& rows, const Block& block, const Element& element) {
  for (std::int64_t c = 0; c < rows.columns; c += 4) {
    for (std::int64_t r = 0; r < rows.rows; r += 4) {
      if (c + 4 <= rows.columns && r + 4 <= rows.rows && are_neighbours(rows, r)) {
        block(r, c);
        continue;
      }
      for (std::int64_t i = r; i < std::min(r + 4, rows.rows); ++i) {
        for (std::int64_t k = c; k < std::min(c + 4, rows.columns); ++k) element(i, k);
      }
    }
  }
}

template <class T>
void load_transposed(const Rows& rows, const T* from, T* tile) {
  const auto block = [&](std::int64_t r, std::int64_t c) {
    transpose_4x4(from + rows.starts[r] + c * rows.stride, rows.stride, tile + r * rows.columns + c,
                  rows.columns);
  };
  for_each_block(rows, block, [&](std::int64_t r, std::int64_t c) {
    tile[r * rows.columns + c] = from[rows.starts[r] + c * rows.stride];
  });
}

template <class T>
void store_transposed(const Rows& rows, const T* tile, T* to) {
  const auto block = [&](std::int64_t r, std::int64_t c) {
    transpose_4x4(tile + r * rows.columns + c, rows.columns, to + rows.starts[r] + c * rows.stride,
                  rows.stride);
  };
  for_each_block(rows, block, [&](std::int64_t r, std::int64_t c) {
    to[rows.starts[r] + c * rows.stride] = tile[r * rows.columns + c];
  });
}

template <class T>
void load_typed(const Rows& rows, const T* from, T* tile) {
  if (is_transposed(rows)) return load_transposed(rows, from, tile);
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    const T* source = from + rows.starts[r];
    T* target = tile + r * rows.columns;
    if (rows.stride == 1) {
      // memmove: a load may already have the memory of the store.
      std::memmove(target, source, static_cast<std::size_t>(rows.columns) * sizeof(T));
    } else if (rows.stride == 0) {
      const T value = *source;
      for (std::int64_t c = 0; c < rows.columns; ++c) target[c] = value;
    } else {
      for (std::int64_t c = 0; c < rows.columns; ++c) target[c] = source[c * rows.stride];
    }
  }
}

template <class T>
void store_typed(const Rows& rows, const T* tile, T* to) {
  if (is_transposed(rows)) return store_transposed(rows, tile, to);
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    const T* source = tile + r * rows.columns;
    T* target = to + rows.starts[r];
    if (rows.stride == 1) {
      std::memmove(target, source, static_cast<std::size_t>(rows.columns) * sizeof(T));
    } else {
      for (std::int64_t c = 0; c < rows.columns; ++c) target[c * rows.stride] = source[c];
    }
  }
}

template <class T>
void iota_typed(std::int64_t start, std::int64_t stride, std::byte* to, std::int64_t n) {
  T* target = reinterpret_cast<T*>(to);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t count = start + i * stride;
    if constexpr (detail::kIsHalf<T>) {
      target[i] = T(static_cast<double>(count));
    } else {
      target[i] = static_cast<T>(count);
    }
  }
}

// Calls body with a value of the unsigned integer type that has `bytes` bytes.
template <class Body>
void with_size(std::size_t bytes, const Body& body) {
  if (bytes == 1) return body(std::uint8_t{});
  if (bytes == 2) return body(std::uint16_t{});
  if (bytes == 4) return body(std::uint32_t{});
  body(std::uint64_t{});
}

}  // namespace

void load_rows(const Rows& rows, const std::byte* from, std::byte* tile) {
  with_size(rows.element_bytes, [&](auto zero) {
    using T = decltype(zero);
    load_typed(rows, reinterpret_cast<const T*>(from), reinterpret_cast<T*>(tile));
  });
}

void store_rows(const Rows& rows, const std::byte* tile, std::byte* to) {
  with_size(rows.element_bytes, [&](auto zero) {
    using T = decltype(zero);
    store_typed(rows, reinterpret_cast<const T*>(tile), reinterpret_cast<T*>(to));
  });
}

void fill_iota(DType dtype, std::int64_t start, std::int64_t stride, std::byte* to,
               std::int64_t n) {
  if (dtype == DType::boolean) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = std::byte{start + i * stride != 0};
    return;
  }
  with_element(dtype, [&](auto zero) { iota_typed<decltype(zero)>(start, stride, to, n); });
}

}  // namespace tessera::kernels::tiles
