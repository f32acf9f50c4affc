// Broadcasts one element per row to whole rows.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/tile/tile_program_fill.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <cstring>
#include <hwy/highway.h>

#include "compile/host/kernels/tile/tile_program_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::tiles::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
void fill_typed(const std::byte* values, std::int64_t rows, std::int64_t columns, std::byte* to) {
  const hn::ScalableTag<T> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  T* target = reinterpret_cast<T*>(to);
  T* const end = target + rows * columns;
  for (std::int64_t r = 0; r < rows; ++r, target += columns) {
    T value;
    std::memcpy(&value, values + static_cast<std::size_t>(r) * sizeof(T), sizeof(T));
    const auto vector = hn::Set(d, value);
    std::int64_t i = 0;
    // A vector may extend into the next row, which is written later.
    for (; i < columns && target + i + kLanes <= end; i += kLanes)
      hn::StoreU(vector, d, target + i);
    for (; i < columns; ++i) target[i] = value;
  }
}

void fill_of_size(std::size_t element_bytes, const std::byte* values, std::int64_t rows,
                  std::int64_t columns, std::byte* to) {
  if (element_bytes == 1) return fill_typed<std::uint8_t>(values, rows, columns, to);
  if (element_bytes == 2) return fill_typed<std::uint16_t>(values, rows, columns, to);
  if (element_bytes == 4) return fill_typed<std::uint32_t>(values, rows, columns, to);
  fill_typed<std::uint64_t>(values, rows, columns, to);
}

}  // namespace
}  // namespace tessera::kernels::tiles::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::tiles {

HWY_EXPORT(fill_of_size);

void fill_rows(std::size_t element_bytes, const std::byte* values, std::int64_t rows,
               std::int64_t columns, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(fill_of_size)(element_bytes, values, rows, columns, to);
}

}  // namespace tessera::kernels::tiles
#endif  // HWY_ONCE
