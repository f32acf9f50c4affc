// Loops over strips, compiled once per instruction set.
#if defined(TESSERA_KERNELS_LINALG_STRIPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_LINALG_STRIPS_INL_H_
#undef TESSERA_KERNELS_LINALG_STRIPS_INL_H_
#else
#define TESSERA_KERNELS_LINALG_STRIPS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <hwy/highway.h>
#include <type_traits>

#include "compile/host/kernels/gemm/gemm_accumulators-inl.h"
#include "compile/host/kernels/linalg/strips.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::strips::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace tiles = gemm::HWY_NAMESPACE;

template <class T>
using Row = tiles::TileWidth<hn::ScalableTag<T>,
                             static_cast<int>(kStripWidth<T> / hn::MaxLanes(hn::ScalableTag<T>()))>;
// Eight chains of additions hide their latency.
inline constexpr int kTileRows = HWY_TARGET == HWY_AVX3 ? 8 : 4;
// A product with a single row takes several strips at a time for that.
inline constexpr int kStripsOfRow = HWY_TARGET == HWY_AVX3 ? 8 : 4;

struct FusedDifference {
  // c - a * b
  template <class V>
  static HWY_INLINE V add(V a, V b, V c) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
    return tiles::fused_mul_add(hn::Neg(a), b, c);
#elif (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2) && HWY_COMPILER_GCC_ACTUAL
    // As in fused_mul_add().
    if constexpr (sizeof(hn::TFromV<V>) == 8) {
      asm("vfnmadd231pd %2, %1, %0" : "+v"(c.raw) : "v"(a.raw), "v"(b.raw));
    } else {
      asm("vfnmadd231ps %2, %1, %0" : "+v"(c.raw) : "v"(a.raw), "v"(b.raw));
    }
    return c;
#else
    return hn::NegMulAdd(a, b, c);
#endif
  }
};

// One term of some rows of a row-major matrix.
template <class T>
struct ColumnOfRows {
  const T* a;
  std::int64_t stride;
  HWY_INLINE const T* at(int row) const { return a + row * stride; }
};

template <class T, int kRows>
using Tile = tiles::Accumulators<kRows, Row<T>>;

// Subtracts the products of `terms` terms from the tile.
template <class T, int kRows>
HWY_INLINE void subtract_terms(ColumnOfRows<T> a, const T* b, std::int64_t terms,
                               Tile<T, kRows>& tile) {
  constexpr int kVecs = Row<T>::kVecs;
  const typename Row<T>::D d;
  for (; terms > 0; --terms, ++a.a, b += kStripWidth<T>) {
    typename Row<T>::V of_b[tiles::count(kVecs)];
    for (int i = 0; i < kVecs; ++i) of_b[i] = hn::Load(d, b + i * Row<T>::kLanes);
    tile.template step<FusedDifference>(a, of_b);
  }
}

template <class T, int kRows>
HWY_NOINLINE void subtract_tile(const StripProduct<T>& p, const T* a, const T* b, T* c) {
  Tile<T, kRows> tile;
  tile.load(c);
  subtract_terms<T, kRows>({a, p.a_stride}, b, p.terms, tile);
  tile.store(c);
}

// One row of `kStripsOfRow` strips.
template <class T>
HWY_NOINLINE void subtract_row(const StripProduct<T>& p, const T* b, T* c) {
  constexpr int kVecs = Row<T>::kVecs;
  const typename Row<T>::D d;
  typename Row<T>::V sums[tiles::count(kStripsOfRow * kVecs)];
  for (int i = 0; i < kStripsOfRow * kVecs; ++i)
    sums[i] = hn::Load(d, c + i / kVecs * p.c_stride + i % kVecs * Row<T>::kLanes);
  for (std::int64_t k = 0; k < p.terms; ++k, b += kStripWidth<T>) {
    const auto of_a = hn::Set(d, p.a[k]);
    for (int i = 0; i < kStripsOfRow * kVecs; ++i) {
      const auto of_b = hn::Load(d, b + i / kVecs * p.b_stride + i % kVecs * Row<T>::kLanes);
      sums[i] = FusedDifference::add(of_a, of_b, sums[i]);
    }
  }
  for (int i = 0; i < kStripsOfRow * kVecs; ++i)
    hn::Store(sums[i], d, c + i / kVecs * p.c_stride + i % kVecs * Row<T>::kLanes);
}

// Calls body(row, height) for tiles of rows, with the height as a constant.
template <class Body>
HWY_INLINE void for_tiles(std::int64_t rows, const Body& body) {
  std::int64_t row = 0;
  for (; row + kTileRows <= rows; row += kTileRows)
    body(row, std::integral_constant<int, kTileRows>());
  if constexpr (kTileRows > 4) {
    if (row + 4 <= rows) {
      body(row, std::integral_constant<int, 4>());
      row += 4;
    }
  }
  if (row + 2 <= rows) {
    body(row, std::integral_constant<int, 2>());
    row += 2;
  }
  if (row < rows) body(row, std::integral_constant<int, 1>());
}

template <class T>
void subtract_product_of(const StripProduct<T>& p) {
  std::int64_t s = 0;
  if (p.rows == 1) {
    for (; s + kStripsOfRow <= p.strips; s += kStripsOfRow)
      subtract_row(p, p.b + s * p.b_stride, p.c + s * p.c_stride);
  }
  for (; s < p.strips; ++s) {
    for_tiles(p.rows, [&](std::int64_t row, auto height) {
      subtract_tile<T, height.value>(p, p.a + row * p.a_stride, p.b + s * p.b_stride,
                                     p.c + s * p.c_stride + row * kStripWidth<T>);
    });
  }
}

// Rows [first, first + kRows) of the solution, from those before them.
template <class T, int kRows>
HWY_NOINLINE void solve_tile(const StripSystem<T>& s, std::int64_t first, T* x) {
  constexpr int kVecs = Row<T>::kVecs;
  const typename Row<T>::D d;
  const T* l = s.l + first * s.l_stride;
  Tile<T, kRows> tile;
  tile.load(x + first * kStripWidth<T>);
  subtract_terms<T, kRows>({l, s.l_stride}, x, first, tile);
  l += first;
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVecs; ++v) {
      auto& of_x = tile.v[i * kVecs + v];
      if (!s.has_unit_diagonal) of_x = hn::Div(of_x, hn::Set(d, l[i * s.l_stride + i]));
      for (int below = i + 1; below < kRows; ++below) {
        auto& rest = tile.v[below * kVecs + v];
        rest = FusedDifference::add(hn::Set(d, l[below * s.l_stride + i]), of_x, rest);
      }
    }
  }
  tile.store(x + first * kStripWidth<T>);
}

template <class T>
void solve_lower_of(const StripSystem<T>& s) {
  for (std::int64_t i = 0; i < s.strips; ++i) {
    for_tiles(s.size, [&](std::int64_t row, auto height) {
      solve_tile<T, height.value>(s, row, s.x + i * s.x_stride);
    });
  }
}

}  // namespace tessera::kernels::strips::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_LINALG_STRIPS_INL_H_
