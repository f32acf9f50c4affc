// Moving rows between memory and dense tiles.
#include <cstring>
#include <utility>

#include "compile/host/kernels/tile_program_internal.h"

namespace tessera::kernels::tiles {

namespace {

// Rows next to each other in memory whose columns are far apart: read along the memory, so that
// each cache line is used up at once.
bool is_transposed(const Rows& rows) {
  return rows.rows > 1 && std::abs(rows.stride) > 1 &&
         std::abs(rows.starts[1] - rows.starts[0]) < std::abs(rows.stride);
}

template <class T>
void load_typed(const Rows& rows, const T* from, T* tile) {
  if (is_transposed(rows)) {
    for (std::int64_t c = 0; c < rows.columns; ++c) {
      for (std::int64_t r = 0; r < rows.rows; ++r)
        tile[r * rows.columns + c] = from[rows.starts[r] + c * rows.stride];
    }
    return;
  }
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    const T* source = from + rows.starts[r];
    T* target = tile + r * rows.columns;
    if (rows.stride == 1) {
      std::memcpy(target, source, static_cast<std::size_t>(rows.columns) * sizeof(T));
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
  if (is_transposed(rows)) {
    for (std::int64_t c = 0; c < rows.columns; ++c) {
      for (std::int64_t r = 0; r < rows.rows; ++r)
        to[rows.starts[r] + c * rows.stride] = tile[r * rows.columns + c];
    }
    return;
  }
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    const T* source = tile + r * rows.columns;
    T* target = to + rows.starts[r];
    if (rows.stride == 1) {
      // A load may be stored where it lies.
      std::memmove(target, source, static_cast<std::size_t>(rows.columns) * sizeof(T));
    } else {
      for (std::int64_t c = 0; c < rows.columns; ++c) target[c * rows.stride] = source[c];
    }
  }
}

template <class T>
void fill_typed(const std::byte* value, std::byte* to, std::int64_t n) {
  T typed;
  std::memcpy(&typed, value, sizeof(T));
  T* target = reinterpret_cast<T*>(to);
  for (std::int64_t i = 0; i < n; ++i) target[i] = typed;
}

template <class T>
void iota_typed(std::int64_t start, std::int64_t stride, std::byte* to, std::int64_t n) {
  T* target = reinterpret_cast<T*>(to);
  for (std::int64_t i = 0; i < n; ++i) target[i] = static_cast<T>(start + i * stride);
}

// Calls body with a value of the unsigned type of `bytes` bytes.
template <class Body>
void with_size(std::size_t bytes, const Body& body) {
  if (bytes == 1) return body(std::uint8_t{});
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

void fill(std::size_t element_bytes, const std::byte* value, std::byte* to, std::int64_t n) {
  with_size(element_bytes, [&](auto zero) { fill_typed<decltype(zero)>(value, to, n); });
}

void fill_iota(DType dtype, std::int64_t start, std::int64_t stride, std::byte* to,
               std::int64_t n) {
  switch (dtype) {
    case DType::boolean:
      for (std::int64_t i = 0; i < n; ++i) to[i] = std::byte{start + i * stride != 0};
      return;
    case DType::i32:
    case DType::u32:
      return iota_typed<std::uint32_t>(start, stride, to, n);
    case DType::f32:
      return iota_typed<float>(start, stride, to, n);
    case DType::f64:
      return iota_typed<double>(start, stride, to, n);
  }
}

}  // namespace tessera::kernels::tiles
