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

/// Copies pieces of `kRows` rows by `kColumns` columns of the result.
struct FloatSquares {
  using Element = float;
  static constexpr std::int64_t kRows = kSquare;
  static constexpr std::int64_t kColumns = kSquare;

  static HWY_INLINE void Copy(const TransposedMatrix& m, const float* from, float* to) {
    const Square d;
    SquareRow square[kSquare];
    for (std::int64_t i = 0; i < kSquare; ++i) square[i] = hn::LoadU(d, from + i * m.from_stride);
    TransposeSquare(square);
    for (std::int64_t i = 0; i < kSquare; ++i) hn::StoreU(square[i], d, to + i * m.to_stride);
  }
};

/// Likewise. A piece has as many rows as a vector of up to `kBytes` has elements, and at most as
/// many columns as a block of 128 bits has.
template <typename T, std::size_t kBytes>
struct Blocks {
  using Element = T;
  using Row = hn::CappedTag<T, kBytes / sizeof(T)>;
  static constexpr std::int64_t kRows = hn::MaxLanes(Row());
  static constexpr std::int64_t kColumns =
      HWY_MIN(kRows, static_cast<std::int64_t>(16 / sizeof(T)));

  static HWY_INLINE void Copy(const TransposedMatrix& m, const T* from, T* to) {
    const Row d;
    hn::Vec<Row> rows[static_cast<std::size_t>(kColumns)];
    for (std::int64_t i = 0; i < kColumns; ++i) rows[i] = hn::LoadU(d, from + i * m.from_stride);
#if HWY_TARGET != HWY_SCALAR
    // Each round brings together elements that are twice as far apart as in the round before.
    constexpr std::int64_t kHalf = kColumns / 2;
    for (std::int64_t apart = 1; apart < kColumns; apart *= 2) {
      hn::Vec<Row> mixed[static_cast<std::size_t>(kColumns)];
      for (std::int64_t i = 0; i < kHalf; ++i) {
        mixed[2 * i] = hn::InterleaveLower(d, rows[i], rows[i + kHalf]);
        mixed[2 * i + 1] = hn::InterleaveUpper(d, rows[i], rows[i + kHalf]);
      }
      for (std::int64_t i = 0; i < kColumns; ++i) rows[i] = mixed[i];
    }
    if constexpr (kRows > kColumns) {
      const hn::Half<Row> half;
      for (std::int64_t i = 0; i < kColumns; ++i) {
        hn::StoreU(hn::LowerHalf(half, rows[i]), half, to + i * m.to_stride);
        hn::StoreU(hn::UpperHalf(half, rows[i]), half, to + (i + kColumns) * m.to_stride);
      }
      return;
    }
#endif
    for (std::int64_t i = 0; i < kColumns; ++i) hn::StoreU(rows[i], d, to + i * m.to_stride);
  }
};

template <typename T>
void TransposeElements(const TransposedMatrix& m, const T* from, T* to) {
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t c = 0; c < m.columns; ++c) {
      to[r * m.to_stride + c] = from[c * m.from_stride + r];
    }
  }
}

/// Works on panels: a few cache lines of each of a few rows of the source. A panel touches few
/// pages and stays cached until its last pieces are copied. The last pieces of the matrix may
/// overlap those before them.
template <class Pieces, typename T = typename Pieces::Element>
void TransposePanels(const TransposedMatrix& m, const T* from, T* to) {
  constexpr std::int64_t kPanelRows = 512 / sizeof(T);
  constexpr std::int64_t kPanelColumns = 64;
  for (std::int64_t row = 0; row < m.rows; row += kPanelRows) {
    const std::int64_t end_row = HWY_MIN(row + kPanelRows, m.rows);
    for (std::int64_t column = 0; column < m.columns; column += kPanelColumns) {
      const std::int64_t end_column = HWY_MIN(column + kPanelColumns, m.columns);
      for (std::int64_t r = row; r < end_row; r += Pieces::kRows) {
        const std::int64_t at_row = HWY_MIN(r, m.rows - Pieces::kRows);
        for (std::int64_t c = column; c < end_column; c += Pieces::kColumns) {
          const std::int64_t at_column = HWY_MIN(c, m.columns - Pieces::kColumns);
          Pieces::Copy(m, from + at_column * m.from_stride + at_row,
                       to + at_row * m.to_stride + at_column);
        }
      }
    }
  }
}

/// Uses the largest pieces that fit in the matrix.
template <class Large, typename T = typename Large::Element>
void TransposeBy(const TransposedMatrix& m, const T* from, T* to) {
  using Small = Blocks<T, 16>;
  if (m.rows >= Large::kRows && m.columns >= Large::kColumns) {
    TransposePanels<Large>(m, from, to);
  } else if (m.rows >= Small::kRows && m.columns >= Small::kColumns) {
    TransposePanels<Small>(m, from, to);
  } else {
    TransposeElements(m, from, to);
  }
}

void Transpose(const TransposedMatrix& m, const float* from, float* to) {
  TransposeBy<FloatSquares>(m, from, to);
}
void Transpose8(const TransposedMatrix& m, const std::uint8_t* from, std::uint8_t* to) {
  TransposeBy<Blocks<std::uint8_t, 32>>(m, from, to);
}
void Transpose16(const TransposedMatrix& m, const std::uint16_t* from, std::uint16_t* to) {
  TransposeBy<Blocks<std::uint16_t, 32>>(m, from, to);
}
void Transpose64(const TransposedMatrix& m, const std::uint64_t* from, std::uint64_t* to) {
  TransposeBy<Blocks<std::uint64_t, 32>>(m, from, to);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
