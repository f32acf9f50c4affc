// The accumulators of a register tile, compiled once per instruction set.
#if defined(TESSERA_KERNELS_GEMM_ACCUMULATORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_ACCUMULATORS_INL_H_
#undef TESSERA_KERNELS_GEMM_ACCUMULATORS_INL_H_
#else
#define TESSERA_KERNELS_GEMM_ACCUMULATORS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));

// The largest tile whose accumulators, two vectors of B and a broadcast of A fit the registers.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kTileRows = 14;
inline constexpr int kQuadRows = 4;  // three sets of accumulators
#elif HWY_TARGET == HWY_NEON
inline constexpr int kTileRows = 12;
inline constexpr int kQuadRows = 4;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kTileRows = 6;
inline constexpr int kQuadRows = 0;  // too few registers
#else
inline constexpr int kTileRows = 4;
inline constexpr int kQuadRows = 2;
#endif
inline constexpr int kTileCols = kMaxTileVectors * kLanes;
inline constexpr int kPackedRows = (kTileRows + kLanes - 1) / kLanes * kLanes;

// Tiles of one vector have as many accumulators, in twice as many rows where the table has room.
inline constexpr int kNarrowTileRows = std::min(2 * kTileRows, kMaxTileRows);
inline constexpr int kNarrowQuadRows = 2 * kQuadRows;

// The columns of a tile: so many vectors of a type.
template <class DTile, int kCount>
struct TileWidth {
  using D = DTile;
  using V = hn::Vec<DTile>;
  static constexpr int kVecs = kCount;
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(DTile()));
  static constexpr int kCols = kVecs * kLanes;
};

template <int kRows, class Width>
inline constexpr int kNodeSize = kRows* Width::kCols;

constexpr std::size_t count(int n) { return static_cast<std::size_t>(n); }

template <class V>
HWY_INLINE V fused_mul_add(V a, V b, V c) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  const D d;
  HWY_ALIGN float x[count(kLanes)], y[count(kLanes)], z[count(kLanes)];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (int i = 0; i < kLanes; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#elif (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2) && HWY_COMPILER_GCC_ACTUAL
  // As an intrinsic, g++ 12 picks the form that overwrites a factor for some of a tile's
  // accumulators, and then spills a third of them.
  asm("vfmadd231ps %2, %1, %0" : "+v"(c.raw) : "v"(a.raw), "v"(b.raw));
  return c;
#else
  return hn::MulAdd(a, b, c);
#endif
}

// One term of f32 in a step.
struct FusedProduct {
  template <class V>
  static HWY_INLINE V add(V a, V b, V c) {
    return fused_mul_add(a, b, c);
  }
};

// A zero of its own per accumulator: the compiler copies one zero into all of them instead, which
// costs more than clearing a register.
template <class D>
HWY_INLINE hn::Vec<D> fresh_zero() {
#if HWY_TARGET == HWY_AVX3 && HWY_COMPILER_GCC_ACTUAL
  hn::Vec<D> zero;
  asm volatile("vpxord %0, %0, %0" : "=v"(zero.raw));
  return zero;
#elif HWY_TARGET == HWY_AVX2 && HWY_COMPILER_GCC_ACTUAL
  hn::Vec<D> zero;
  asm volatile("vxorps %0, %0, %0" : "=x"(zero.raw));
  return zero;
#else
  return hn::Zero(D());
#endif
}

// The accumulators of a tile. Every loop over rows is a recursion over a template argument, so that
// all indices are constants when the compiler decides what may live in registers.
template <int kRows, class Width>
struct Accumulators {
  using D = typename Width::D;
  using V = typename Width::V;
  static constexpr int kVecs = Width::kVecs;
  static constexpr int kLanes = Width::kLanes;

  V v[count(kRows)][count(kVecs)];

  template <int r = 0>
  HWY_INLINE void zero() {
    if constexpr (r < kRows) {
      for (int j = 0; j < kVecs; ++j) v[r][j] = fresh_zero<D>();
      zero<r + 1>();
    }
  }

  template <int r = 0>
  HWY_INLINE void add_zero() {
    if constexpr (r < kRows) {
      for (int j = 0; j < kVecs; ++j) v[r][j] = hn::Add(v[r][j], hn::Zero(D()));
      add_zero<r + 1>();
    }
  }

  template <int r = 0>
  HWY_INLINE void load(const float* node) {
    if constexpr (r < kRows) {
      for (int j = 0; j < kVecs; ++j) v[r][j] = hn::Load(D(), node + (r * kVecs + j) * kLanes);
      load<r + 1>(node);
    }
  }

  template <int r = 0>
  HWY_INLINE void add(const float* node) {
    if constexpr (r < kRows) {
      for (int j = 0; j < kVecs; ++j)
        v[r][j] = hn::Add(v[r][j], hn::Load(D(), node + (r * kVecs + j) * kLanes));
      add<r + 1>(node);
    }
  }

  template <int r = 0>
  HWY_INLINE void add(const Accumulators& other) {
    if constexpr (r < kRows) {
      for (int j = 0; j < kVecs; ++j) v[r][j] = hn::Add(v[r][j], other.v[r][j]);
      add<r + 1>(other);
    }
  }

  template <int r = 0>
  HWY_INLINE void store(float* node) const {
    if constexpr (r < kRows) {
      for (int j = 0; j < kVecs; ++j) hn::Store(v[r][j], D(), node + (r * kVecs + j) * kLanes);
      store<r + 1>(node);
    }
  }

  template <int r = 0>
  HWY_INLINE void store_rows(float* c, const std::int64_t* c_rows) const {
    if constexpr (r < kRows) {
      for (int j = 0; j < kVecs; ++j) hn::StoreU(v[r][j], D(), c + c_rows[r] + j * kLanes);
      store_rows<r + 1>(c, c_rows);
    }
  }

#if HWY_TARGET == HWY_AVX3
  // Only the last vector is cut. Masked stores do not touch memory beyond the row on this target.
  template <int r = 0>
  HWY_INLINE void store_columns(float* c, const std::int64_t* c_rows, int cols) const {
    constexpr int kWhole = (kVecs - 1) * kLanes;
    if constexpr (r < kRows) {
      float* row = c + c_rows[r];
      for (int j = 0; j + 1 < kVecs; ++j) hn::StoreU(v[r][j], D(), row + j * kLanes);
      const auto mask = hn::FirstN(D(), static_cast<std::size_t>(cols - kWhole));
      hn::BlendedStore(v[r][kVecs - 1], mask, D(), row + kWhole);
      store_columns<r + 1>(c, c_rows, cols);
    }
  }
#endif

  // acc(r, j) = Product::add(A(r), b[j], acc(r, j))
  template <class Product, int r = 0, class Column>
  HWY_INLINE void step(const Column& a, const V* b) {
    if constexpr (r < kRows) {
      const V x = hn::Set(D(), *a.template at<r>());
      for (int j = 0; j < kVecs; ++j) v[r][j] = Product::add(x, b[j], v[r][j]);
      step<Product, r + 1>(a, b);
    }
  }
};

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_ACCUMULATORS_INL_H_
