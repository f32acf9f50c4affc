// Copies rows between memory and dense tiles.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "compile/host/kernels/tile/tile_program_internal.h"
#include "compile/host/kernels/transpose.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::kernels::tiles {

namespace {

// Whether rows are adjacent in memory while columns are far apart. Such tiles are read in blocks,
// so that each cache line is used completely while it is cached.
bool is_transposed(const Rows& rows) {
  return rows.rows > 1 && std::abs(rows.stride) > 1 &&
         std::abs(rows.starts[1] - rows.starts[0]) < std::abs(rows.stride);
}

// Calls run(first, count) for rows each of which begins one element after the row before it.
template <class Run>
void for_each_run(const Rows& rows, const Run& run) {
  for (std::int64_t first = 0, end = 0; first < rows.rows; first = end) {
    for (end = first + 1; end < rows.rows && rows.starts[end] == rows.starts[end - 1] + 1;) ++end;
    run(first, end - first);
  }
}

template <class T>
void load_transposed(const Rows& rows, const T* from, T* tile) {
  for_each_run(rows, [&](std::int64_t first, std::int64_t count) {
    transpose({count, rows.columns, rows.stride, rows.columns}, from + rows.starts[first],
              tile + first * rows.columns);
  });
}

template <class T>
void store_transposed(const Rows& rows, const T* tile, T* to) {
  for_each_run(rows, [&](std::int64_t first, std::int64_t count) {
    transpose({rows.columns, count, rows.columns, rows.stride}, tile + first * rows.columns,
              to + rows.starts[first]);
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
T counted(std::int64_t count) {
  if constexpr (detail::kIsHalf<T>) {
    return T(static_cast<double>(count));
  } else {
    return static_cast<T>(count);
  }
}

// Integers wrap.
template <class T, class Step>
void count_up(Step start, Step step, T* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i, start += step) to[i] = static_cast<T>(start);
}

template <class T>
void iota_typed(std::int64_t start, std::int64_t stride, std::byte* to, std::int64_t n) {
  T* target = reinterpret_cast<T*>(to);
  if (stride == 0) {
    std::fill_n(target, n, counted<T>(start));
    return;
  }
  if constexpr (std::is_integral_v<T>) {
    using Step = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    return count_up(static_cast<Step>(start), static_cast<Step>(stride), target, n);
  }
  for (std::int64_t i = 0; i < n; ++i) target[i] = counted<T>(start + i * stride);
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
