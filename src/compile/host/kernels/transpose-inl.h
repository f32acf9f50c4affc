// Transposes blocks in registers; compiled once per instruction set.

#if defined(TESSERA_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_TRANSPOSE_INL_H_
#undef TESSERA_TRANSPOSE_INL_H_
#else
#define TESSERA_TRANSPOSE_INL_H_
#endif

#include <cstdint>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// With more than eight lanes, each element would need more shuffles.
using Square = hn::CappedTag<float, 8>;
using SquareRow = hn::Vec<Square>;
constexpr std::int64_t kSquare = HWY_MIN(hn::MaxLanes(Square()), 8);

/// Transposes kSquare rows in place: rows[i][k] becomes rows[k][i].
HWY_INLINE void TransposeSquare(SquareRow* rows) {
#if HWY_TARGET != HWY_SCALAR
  const Square d;
  const hn::RepartitionToWide<hn::RebindToUnsigned<Square>> pairs;
  // Transposes squares of four: each 128-bit block then holds elements of four rows.
  SquareRow fours[kSquare];
  for (std::int64_t r = 0; r < kSquare; r += 4) {
    const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, rows[r], rows[r + 1]));
    const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, rows[r + 2], rows[r + 3]));
    const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, rows[r], rows[r + 1]));
    const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, rows[r + 2], rows[r + 3]));
    fours[r] = hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23));
    fours[r + 1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23));
    fours[r + 2] = hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23));
    fours[r + 3] = hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23));
  }
  if constexpr (kSquare == 8) {
    for (std::int64_t k = 0; k < 4; ++k) {
      rows[k] = hn::ConcatLowerLower(d, fours[k + 4], fours[k]);
      rows[k + 4] = hn::ConcatUpperUpper(d, fours[k + 4], fours[k]);
    }
  } else {
    for (std::int64_t k = 0; k < kSquare; ++k) rows[k] = fours[k];
  }
#else
  (void)rows;  // one row of one element
#endif
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
