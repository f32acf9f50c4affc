// Broadcasts one element per row to whole rows.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/tile/tile_program_fill.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <cstring>
#include <hwy/highway.h>
#include <type_traits>

#include "compile/host/kernels/tile/tile_program_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::tiles::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kMostShortColumns = 8;

/// Fills whole groups of as many rows as a vector has lanes, for rows of few columns; returns how
/// many rows these are. Each vector of the result is made of lanes of one vector of values.
template <class T>
std::int64_t fill_short(const T* values, std::int64_t rows, std::int64_t columns, T* target) {
  // Narrow elements are looked up as 4 bytes each: others have no lookup in vectors of every size.
  using Lane = std::conditional_t<(sizeof(T) < 4), std::uint32_t, T>;
  const hn::ScalableTag<Lane> d;
  const hn::Rebind<T, decltype(d)> in_memory;
  using Index = hn::TFromD<hn::RebindToUnsigned<decltype(d)>>;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  if (rows < kLanes) return 0;
  // Element k of the rows of a group is the value of row k / columns.
  Index lanes[static_cast<std::size_t>(kLanes * kMostShortColumns)];
  Index* lane = lanes;
  for (std::int64_t row = 0; row < kLanes; ++row) {
    for (std::int64_t c = 0; c < columns; ++c) *lane++ = static_cast<Index>(row);
  }
  std::int64_t first = 0;
  for (; first + kLanes <= rows; first += kLanes) {
    hn::Vec<decltype(d)> of_rows;
    if constexpr (sizeof(T) < 4) {
      of_rows = hn::PromoteTo(d, hn::LoadU(in_memory, values + first));
    } else {
      of_rows = hn::LoadU(d, values + first);
    }
    for (std::int64_t k = 0; k < columns; ++k, target += kLanes) {
      const auto indices = hn::SetTableIndices(d, lanes + k * kLanes);
      const auto found = hn::TableLookupLanes(of_rows, indices);
      if constexpr (sizeof(T) < 4) {
        hn::StoreU(hn::TruncateTo(in_memory, found), in_memory, target);
      } else {
        hn::StoreU(found, d, target);
      }
    }
  }
  return first;
}

template <class T>
void fill_typed(const std::byte* values, std::int64_t rows, std::int64_t columns, std::byte* to) {
  const hn::ScalableTag<T> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  T* target = reinterpret_cast<T*>(to);
  T* const end = target + rows * columns;
  if (columns <= kMostShortColumns) {
    const std::int64_t filled =
        fill_short(reinterpret_cast<const T*>(values), rows, columns, target);
    values += static_cast<std::size_t>(filled) * sizeof(T);
    target += filled * columns;
    rows -= filled;
  }
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
