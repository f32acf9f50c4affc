// Register tiles of the matrix product, compiled once per instruction set.
#if defined(TESSERA_KERNELS_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_TILE_INL_H_
#undef TESSERA_KERNELS_GEMM_TILE_INL_H_
#else
#define TESSERA_KERNELS_GEMM_TILE_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <hwy/cache_control.h>
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
#elif HWY_TARGET == HWY_NEON
inline constexpr int kTileRows = 12;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kTileRows = 6;
#else
inline constexpr int kTileRows = 4;
#endif
inline constexpr int kTileCols = kMaxTileVectors * kLanes;
inline constexpr int kPackedRows = (kTileRows + kLanes - 1) / kLanes * kLanes;

template <int kRows, int kVecs>
inline constexpr int kNodeSize = kRows* kVecs* kLanes;

constexpr std::size_t count(int n) { return static_cast<std::size_t>(n); }

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

// A zero of its own per accumulator: the compiler copies one zero into all of them instead, which
// costs more than clearing a register.
HWY_INLINE V fresh_zero() {
#if HWY_TARGET == HWY_AVX3 && HWY_COMPILER_GCC_ACTUAL
  V zero;
  asm volatile("vpxord %0, %0, %0" : "=v"(zero.raw));
  return zero;
#elif HWY_TARGET == HWY_AVX2 && HWY_COMPILER_GCC_ACTUAL
  V zero;
  asm volatile("vxorps %0, %0, %0" : "=x"(zero.raw));
  return zero;
#else
  return hn::Zero(D());
#endif
}

// The accumulators of a tile. Every loop over rows is a recursion over a template argument, so that
// all indices are constants when the compiler decides what may live in registers.
template <int kRows, int kVecs>
struct Accumulators {
  V v[count(kRows)][count(kVecs)];

  template <int r = 0>
  HWY_INLINE void zero() {
    if constexpr (r < kRows) {
      for (int j = 0; j < kVecs; ++j) v[r][j] = fresh_zero();
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

  // acc(r, j) = fma(A(r), b[j], acc(r, j))
  template <int r = 0, class Column>
  HWY_INLINE void step(const Column& a, const V* b) {
    if constexpr (r < kRows) {
      const V x = hn::Set(D(), *a.template at<r>());
      for (int j = 0; j < kVecs; ++j) v[r][j] = fused_mul_add(x, b[j], v[r][j]);
      step<r + 1>(a, b);
    }
  }
};

// Hides from the compiler where a pointer comes from.
HWY_INLINE void launder(const float*& pointer) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm("" : "+r"(pointer));
#endif
}

// A whose rows lie next to each other: packed, or in place.
template <int kRows>
struct AdjacentRows {
  const float* a;
  std::int64_t stride;

  HWY_INLINE explicit AdjacentRows(const TileArgs& args) : a(args.a), stride(args.a_stride) {}
  HWY_INLINE void advance(int k) { a += k * stride; }

  template <int k>
  struct Column {
    const float* a;
    template <int r>
    HWY_INLINE const float* at() const {
      return a + r;
    }
  };
  template <int k>
  HWY_INLINE Column<k> column() const {
    return {a + k * stride};
  }
};

// A whose k lie next to each other, in place: one pointer for three rows, so that the pointers fit
// the address registers.
template <int kRows>
struct StridedRows {
  static constexpr int kBases = (kRows + 2) / 3;
  const float* base[count(kBases)];
  std::int64_t stride;

  HWY_INLINE explicit StridedRows(const TileArgs& args) : stride(args.a_stride) {
    for (int i = 0; i < kBases; ++i) {
      base[i] = args.a + 3 * i * stride;
      launder(base[i]);
    }
  }
  HWY_INLINE void advance(int k) {
    for (int i = 0; i < kBases; ++i) {
      base[i] += k;
      launder(base[i]);
    }
  }

  template <int k>
  struct Column {
    const StridedRows& rows;
    template <int r>
    HWY_INLINE const float* at() const {
      return rows.base[r / 3] + r % 3 * rows.stride + k;
    }
  };
  template <int k>
  HWY_INLINE Column<k> column() const {
    return {*this};
  }
};

// Reads A and B of a tile, k after k.
template <int kRows, int kVecs, class Rows>
struct Stream {
  Rows rows;
  const float* b;

  HWY_INLINE explicit Stream(const TileArgs& args) : rows(args), b(args.packed_b) {}

  template <int kCount, int i = 0>
  HWY_INLINE void steps(Accumulators<kRows, kVecs>& acc) {
    if constexpr (i < kCount) {
      V x[count(kVecs)];
      for (int j = 0; j < kVecs; ++j) x[j] = hn::Load(D(), b + i * kTileCols + j * kLanes);
      acc.step(rows.template column<i>(), x);
      steps<kCount, i + 1>(acc);
    }
  }

  template <int kCount>
  HWY_INLINE void advance(Accumulators<kRows, kVecs>& acc) {
    steps<kCount>(acc);
    b += kCount * kTileCols;
    rows.advance(kCount);
  }

  HWY_INLINE void chain(Accumulators<kRows, kVecs>& acc, std::int64_t length) {
    for (; length >= 4; length -= 4) advance<4>(acc);
    for (; length > 0; --length) advance<1>(acc);
  }
};

// Merges a fresh node with those below `top`; returns the new top.
template <int kRows, int kVecs>
HWY_INLINE float* apply(const NodeActions& actions, float* top, Accumulators<kRows, kVecs>& acc) {
  for (std::int32_t i = 0; i < actions.merges; ++i) {
    if ((actions.zeros >> i) & 1u) acc.add_zero();
    top -= kNodeSize<kRows, kVecs>;
    acc.add(top);
  }
  if ((actions.zeros >> actions.merges) & 1u) acc.add_zero();
  return top;
}

template <int kRows, int kVecs>
HWY_INLINE void store_result(const Accumulators<kRows, kVecs>& acc, const TileArgs& args) {
  if (args.cols == kVecs * kLanes) {
    acc.store_rows(args.c, args.c_rows);
    return;
  }
  HWY_ALIGN float node[count(kNodeSize<kRows, kVecs>)];
  acc.store(node);
  for (int r = 0; r < kRows; ++r) {
    float* row = args.c + args.c_rows[r];
    for (int j = 0; j < args.cols; ++j) row[j] = node[r * kVecs * kLanes + j];
  }
}

template <int kRows, int kVecs, class Reads>
HWY_INLINE void tile_over(const TileArgs& args) {
  Accumulators<kRows, kVecs> acc;
  Reads stream(args);
  const Chunk& chunk = *args.chunk;
  float* slot_top = args.slots + chunk.slot * kNodeSize<kRows, kVecs>;
  if (chunk.resumes) {
    acc.load(slot_top);
  } else {
    acc.zero();
  }
  for (int i = 0; chunk.finishes && i < kRows * kVecs; ++i)  // come while the sum is made
    hwy::Prefetch(args.c + args.c_rows[i / kVecs] + i % kVecs * kLanes);
  const Segment* segment = args.segments + chunk.segment_begin;
  const Segment* last = args.segments + chunk.segment_end - 1;
  float* top = args.stack;
  for (;; ++segment) {
    stream.chain(acc, segment->length);
    top = apply(segment->after, top, acc);
    if (segment == last) break;
    acc.store(top);
    top += kNodeSize<kRows, kVecs>;
    acc.zero();
  }
  slot_top = apply(chunk.after, slot_top, acc);
  if (chunk.finishes) {
    store_result(acc, args);
  } else {
    acc.store(slot_top);
  }
}

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_TILE_INL_H_
