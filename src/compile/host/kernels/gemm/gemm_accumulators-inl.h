// The accumulators of a micro-tile, compiled once per instruction set.
#if defined(TESSERA_KERNELS_GEMM_ACCUMULATORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_ACCUMULATORS_INL_H_
#undef TESSERA_KERNELS_GEMM_ACCUMULATORS_INL_H_
#else
#define TESSERA_KERNELS_GEMM_ACCUMULATORS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <hwy/highway.h>
#include <utility>

#include "compile/host/kernels/gemm/gemm_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));

// The largest tile that fits the registers: its accumulators, two vectors of B, a broadcast of A.
#if defined(TESSERA_SMALL_TILES) && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
inline constexpr int kTileRows = 4;  // there is a kernel for each number of rows: compile few
inline constexpr int kQuadRows = 2;
#elif HWY_TARGET == HWY_AVX3
inline constexpr int kTileRows = 14;
inline constexpr int kQuadRows = 4;  // three sets of accumulators
#elif HWY_TARGET == HWY_NEON
inline constexpr int kTileRows = 12;
inline constexpr int kQuadRows = 4;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kTileRows = 6;
inline constexpr int kQuadRows = 4;
#else
inline constexpr int kTileRows = 4;
inline constexpr int kQuadRows = 0;  // std::fma dominates the time: compile few kernels
#endif
// With too few registers for three sets of accumulators, this many nodes of a quad are in memory.
inline constexpr int kQuadNodes = HWY_TARGET == HWY_AVX2 ? 2 : 0;
inline constexpr int kTileCols = kMaxTileVectors * kLanes;
inline constexpr int kPackedRows = (kTileRows + kLanes - 1) / kLanes * kLanes;

// Tiles one vector wide have as many accumulators as others: twice the rows, if the kernel table
// has room.
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
inline constexpr int kNarrowTileRows = kTileRows;
#else
inline constexpr int kNarrowTileRows = std::min(2 * kTileRows, kMaxTileRows);
#endif
inline constexpr int kNarrowQuadRows = 2 * kQuadRows;

// If each column has its own element of A, the indices of these elements take registers.
inline constexpr int kLaneTileRows = HWY_TARGET == HWY_AVX3 ? kTileRows - 1 : kTileRows;

// The width of a tile: a number of vectors and their type.
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

// The fused multiply-add of f32 or f64.
template <class V>
HWY_INLINE V fused_mul_add(V a, V b, V c) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  const hn::DFromV<V> d;
  constexpr std::size_t kCount = hn::MaxLanes(hn::DFromV<V>());
  HWY_ALIGN hn::TFromV<V> x[kCount], y[kCount], z[kCount];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (std::size_t i = 0; i < kCount; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#elif (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2) && HWY_COMPILER_GCC_ACTUAL
  // With the intrinsic, g++ 12 picks the instruction form that overwrites a factor for some of a
  // tile's accumulators, and then spills a third of them.
  if constexpr (sizeof(hn::TFromV<V>) == 8) {
    asm("vfmadd231pd %2, %1, %0" : "+v"(c.raw) : "v"(a.raw), "v"(b.raw));
  } else {
    asm("vfmadd231ps %2, %1, %0" : "+v"(c.raw) : "v"(a.raw), "v"(b.raw));
  }
  return c;
#else
  return hn::MulAdd(a, b, c);
#endif
}

// Keeps the compiler from moving what follows before the sum. Otherwise clang loads the elements of
// A for several steps first and spills accumulators; with AVX-512, g++ 12 mixes steps, so that sums
// wait for each other.
template <class V>
HWY_INLINE void keep_order([[maybe_unused]] V& sum) {
#if HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_AVX2 && HWY_COMPILER_CLANG)
  asm volatile("" : "+v"(sum.raw));
#endif
}

// The operation of a step with one term of f32 or f64.
struct FusedProduct {
  using Element = float;  // of operands that are read by table

  template <class V>
  static HWY_INLINE V add(V a, V b, V c) {
    V sum = fused_mul_add(a, b, c);
    keep_order(sum);
    return sum;
  }
  // The same with one element for all lanes, if the element is used once. With a separate
  // instruction to broadcast it, a Zen 4 reaches three quarters of its peak.
  template <class V, class T>
  static HWY_INLINE V add_of_one(const T* a, V b, V c) {
#if HWY_TARGET == HWY_AVX3
    constexpr std::size_t kSize = sizeof(c.raw) / sizeof(T);
    if constexpr (kSize == 16) {
      asm volatile("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c.raw) : "v"(b.raw), "m"(*a));
    } else if constexpr (sizeof(T) == 8) {
      asm volatile("vfmadd231pd %2%{1to8%}, %1, %0" : "+v"(c.raw) : "v"(b.raw), "m"(*a));
    } else {
      asm volatile("vfmadd231ps %2%{1to8%}, %1, %0" : "+v"(c.raw) : "v"(b.raw), "m"(*a));
    }
    return c;
#else
    return add(hn::Set(hn::DFromV<V>(), *a), b, c);
#endif
  }
};

#if HWY_TARGET == HWY_AVX3 && (HWY_COMPILER_GCC || HWY_COMPILER_CLANG)
// Adds, in each lane, the product of the high halves, then that of the low halves. Uses assembly
// instead of an intrinsic, because these functions are compiled for an instruction set without it.
template <class V>
HWY_INLINE V add_pairs(V a, V b, V c) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(c.raw) : "v"(a.raw), "v"(b.raw));
  return c;
}
#endif

// Reads a word of A. Pairs of bf16 need not be aligned like words.
template <class T>
HWY_INLINE T word_at(const T* from) {
  T word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// Returns a separate zero for each accumulator. The compiler would copy one zero into all of them,
// which costs more than clearing a register.
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

// The accumulators of a tile: rows of vectors. Every loop over them is a fold over `i`, the list of
// their numbers: with constant indices the compiler can keep them in registers.
template <int kRows, class Width, class Numbers>
struct AccumulatorsOf;

template <int kRows, class Width, int... i>
struct AccumulatorsOf<kRows, Width, std::integer_sequence<int, i...>> {
  using D = typename Width::D;
  using V = typename Width::V;
  using T = hn::TFromD<D>;
  static constexpr int kVecs = Width::kVecs;
  static constexpr int kLanes = Width::kLanes;
  static constexpr int kSize = kNodeSize<kRows, Width>;

  V v[count(kRows * kVecs)];

  HWY_INLINE void zero() { ((v[i] = fresh_zero<D>()), ...); }
  HWY_INLINE void add_zero() { ((v[i] = hn::Add(v[i], hn::Zero(D()))), ...); }
  HWY_INLINE void load(const T* node) { ((v[i] = hn::Load(D(), node + i * kLanes)), ...); }
  HWY_INLINE void add(const T* node) {
    ((v[i] = hn::Add(v[i], hn::Load(D(), node + i * kLanes))), ...);
  }
  HWY_INLINE void add(const AccumulatorsOf& other) { ((v[i] = hn::Add(v[i], other.v[i])), ...); }
  HWY_INLINE void store(T* node) const { (hn::Store(v[i], D(), node + i * kLanes), ...); }
  HWY_INLINE void store_rows(T* c, const std::int64_t* c_rows) const {
    (hn::StoreU(v[i], D(), c + c_rows[i / kVecs] + i % kVecs * kLanes), ...);
  }

#if HWY_TARGET == HWY_AVX3
  // Only the last vector of a row is partial. On this target masked stores do not touch memory
  // beyond the row.
  HWY_INLINE void store_columns(T* c, const std::int64_t* c_rows, int cols) const {
    constexpr int kWhole = (kVecs - 1) * kLanes;
    const auto mask = hn::FirstN(D(), static_cast<std::size_t>(cols - kWhole));
    (store_cut<i>(c + c_rows[i / kVecs], mask), ...);
  }
  template <int n, class Mask>
  HWY_INLINE void store_cut(T* row, Mask mask) const {
    if constexpr (n % kVecs == kVecs - 1) {
      hn::BlendedStore(v[n], mask, D(), row + (kVecs - 1) * kLanes);
    } else {
      hn::StoreU(v[n], D(), row + n % kVecs * kLanes);
    }
  }
#endif

  // acc(r, j) = Product::add(A(r), b[j], acc(r, j))
  template <class Product, class Column>
  HWY_INLINE void step(const Column& a, const V* b) {
    if constexpr (kVecs == 1 && requires { Product::add_of_one(a.at(0), b[0], v[0]); }) {
      ((v[i] = Product::add_of_one(a.at(i), b[0], v[i])), ...);
    } else {
      V x = b[0];
      ((x = element_of<i>(a, x), v[i] = Product::add(x, b[i % kVecs], v[i])), ...);
    }
  }
  // The element of A for accumulator n: the one of the accumulator before it if the row is the
  // same.
  template <int n, class Column>
  static HWY_INLINE V element_of(const Column& a, V before) {
    if constexpr (n % kVecs != 0) return before;
    return hn::Set(D(), word_at(a.at(n / kVecs)));
  }
  // The same with a vector of A for each vector of B.
  template <class Product, class Column>
  HWY_INLINE void step_of_vectors(const Column& a, const V* b) {
    ((v[i] = Product::add(a.vector(i / kVecs, i % kVecs), b[i % kVecs], v[i])), ...);
  }
};

template <int kRows, class Width>
using Accumulators =
    AccumulatorsOf<kRows, Width, std::make_integer_sequence<int, kRows * Width::kVecs>>;

// Merges a new node with the nodes below `top`; returns the new top.
template <class Node>
HWY_INLINE typename Node::T* apply(const NodeActions& actions, typename Node::T* top, Node& acc) {
  for (std::int32_t i = 0; i < actions.merges; ++i) {
    if ((actions.zeros >> i) & 1u) acc.add_zero();
    top -= Node::kSize;
    acc.add(top);
  }
  if ((actions.zeros >> actions.merges) & 1u) acc.add_zero();
  return top;
}

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_ACCUMULATORS_INL_H_
