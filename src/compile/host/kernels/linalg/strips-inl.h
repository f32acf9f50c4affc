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
// For the same reason, a product with a single row takes several strips at a time.
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

// Computes one row of `kStripsOfRow` strips.
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

template <class T, int kRows>
HWY_NOINLINE void multiply_tile(const StripRows<T>& r, const T* a, T* y) {
  constexpr int kVecs = Row<T>::kVecs;
  const typename Row<T>::D d;
  Tile<T, kRows> tile;
  tile.zero();
  for (std::int64_t s = 0; s < r.strips; ++s, a += r.a_stride) {
    for (int v = 0; v < kVecs; ++v) {
      const auto of_x = hn::Load(d, r.x + s * kStripWidth<T> + v * Row<T>::kLanes);
      for (int i = 0; i < kRows; ++i) {
        auto& sum = tile.v[i * kVecs + v];
        const auto of_a = hn::Load(d, a + i * kStripWidth<T> + v * Row<T>::kLanes);
        sum = tiles::fused_mul_add(of_a, of_x, sum);
      }
    }
  }
  HWY_ALIGN T sums[tiles::count(Tile<T, kRows>::kSize)];
  tile.store(sums);
  for (int i = 0; i < kRows; ++i) {
    T* of_row = sums + i * kStripWidth<T>;
    for (std::int64_t half = kStripWidth<T> / 2; half > 0; half /= 2) {
      for (std::int64_t lane = 0; lane < half; ++lane) of_row[lane] += of_row[lane + half];
    }
    y[i] = of_row[0];
  }
}

template <class T>
void multiply_rows_of(const StripRows<T>& r) {
  for_tiles(r.rows, [&](std::int64_t row, auto height) {
    multiply_tile<T, height.value>(r, r.a + row * kStripWidth<T>, r.y + row);
  });
}

// A row of a strip that the next turn of a sweep changes too.
template <class T>
struct CarriedRow {
  static constexpr int kVecs = Row<T>::kVecs;
  using D = typename Row<T>::D;
  using V = typename Row<T>::V;

  V v[tiles::count(kVecs)];

  HWY_INLINE void load(const T* row) {
    for (int i = 0; i < kVecs; ++i) v[i] = hn::Load(D(), row + i * Row<T>::kLanes);
  }
  HWY_INLINE void store(T* row) const {
    for (int i = 0; i < kVecs; ++i) hn::Store(v[i], D(), row + i * Row<T>::kLanes);
  }
  // Turns this row and the next one, which is carried from then on. Returns what this row has
  // become.
  HWY_INLINE CarriedRow turn(const Turn<T>& turn, const CarriedRow& next) {
    const V cosine = hn::Set(D(), turn.cosine);
    const V sine = hn::Set(D(), turn.sine);
    CarriedRow turned;
    for (int i = 0; i < kVecs; ++i) {
      turned.v[i] = FusedDifference::add(sine, next.v[i], hn::Mul(cosine, v[i]));
      v[i] = tiles::fused_mul_add(sine, v[i], hn::Mul(cosine, next.v[i]));
    }
    return turned;
  }
};

template <class T>
HWY_NOINLINE void turn_once(const Turn<T>* turns, std::int64_t count, T* row) {
  CarriedRow<T> carried, next;
  carried.load(row);
  for (; count > 0; --count, ++turns, row += kStripWidth<T>) {
    next.load(row + kStripWidth<T>);
    carried.turn(*turns, next).store(row);
  }
  carried.store(row);
}

// Two sweeps that begin in the same row; the second one does not end after the first one. It
// follows the first one, a row behind, so that each row is read and written once for both.
template <class T>
HWY_NOINLINE void turn_twice(const Turn<T>* turns, std::int64_t count, std::int64_t second_count,
                             T* row) {
  const Turn<T>* second_turns = turns + count;
  CarriedRow<T> first, second, next;
  first.load(row);
  next.load(row + kStripWidth<T>);
  second = first.turn(*turns, next);
  const std::int64_t both = second_count < count ? second_count : count - 1;
  for (std::int64_t k = 0; k < both; ++k, row += kStripWidth<T>) {
    next.load(row + 2 * kStripWidth<T>);
    next = first.turn(turns[k + 1], next);
    second.turn(second_turns[k], next).store(row);
  }
  if (second_count == count) {
    second.turn(second_turns[both], first).store(row);
    return second.store(row + kStripWidth<T>);
  }
  second.store(row);
  first.store(row + kStripWidth<T>);
  turn_once(turns + both + 1, count - both - 1, row + kStripWidth<T>);
}

template <class T>
void turn_rows_of(const StripTurns<T>& t) {
  for (std::int64_t strip = 0; strip < t.strips; ++strip) {
    T* x = t.x + strip * t.x_stride;
    const Turn<T>* turns = t.turns;
    for (std::int64_t s = 0; s < t.num_sweeps; ++s) {
      const Sweep& sweep = t.sweeps[s];
      T* row = x + sweep.first * kStripWidth<T>;
      const bool has_second = s + 1 < t.num_sweeps && t.sweeps[s + 1].first == sweep.first &&
                              t.sweeps[s + 1].count <= sweep.count;
      if (has_second) {
        turn_twice(turns, sweep.count, t.sweeps[s + 1].count, row);
        turns += t.sweeps[++s].count;
      } else {
        turn_once(turns, sweep.count, row);
      }
      turns += sweep.count;
    }
  }
}

}  // namespace tessera::kernels::strips::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_LINALG_STRIPS_INL_H_
