// Transposed copies of matrices; compiled once per instruction set.

#if defined(TESSERA_TRANSPOSE_MATRIX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_TRANSPOSE_MATRIX_INL_H_
#undef TESSERA_TRANSPOSE_MATRIX_INL_H_
#else
#define TESSERA_TRANSPOSE_MATRIX_INL_H_
#endif

#include <hwy/highway.h>

#include "compile/host/kernels/transpose-inl.h"
#include "compile/host/kernels/transpose.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE void CopySquare(const float* from, std::int64_t from_stride, float* to,
                           std::int64_t to_stride) {
  const Square d;
  SquareRow square[kSquare];
  for (std::int64_t i = 0; i < kSquare; ++i) square[i] = hn::LoadU(d, from + i * from_stride);
  TransposeSquare(square);
  for (std::int64_t i = 0; i < kSquare; ++i) hn::StoreU(square[i], d, to + i * to_stride);
}

/// Works on panels whose rows fill one cache line of the source. The target is written in long
/// runs, and the rest of a source line is still cached when the second half of the panel needs it.
void Transpose(const TransposedMatrix& m, const float* from, float* to) {
  constexpr std::int64_t kPanelRows = 16;
  constexpr std::int64_t kPanelColumns = 512;
  const std::int64_t whole_rows = m.rows / kSquare * kSquare;
  const std::int64_t whole_columns = m.columns / kSquare * kSquare;
  for (std::int64_t row = 0; row < whole_rows; row += kPanelRows) {
    const std::int64_t end_row = HWY_MIN(row + kPanelRows, whole_rows);
    for (std::int64_t column = 0; column < whole_columns; column += kPanelColumns) {
      const std::int64_t end_column = HWY_MIN(column + kPanelColumns, whole_columns);
      for (std::int64_t r = row; r < end_row; r += kSquare) {
        for (std::int64_t c = column; c < end_column; c += kSquare) {
          CopySquare(from + c * m.from_stride + r, m.from_stride, to + r * m.to_stride + c,
                     m.to_stride);
        }
      }
    }
  }
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t c = r < whole_rows ? whole_columns : 0; c < m.columns; ++c) {
      to[r * m.to_stride + c] = from[c * m.from_stride + r];
    }
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
