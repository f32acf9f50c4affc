// Products with few rows, which take as long as reading B does. Many columns are computed at a
// time, so that B is read in long pieces and many sums are in flight. Compiled once per instruction
// set.
#if defined(TESSERA_KERNELS_GEMM_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_ROWS_INL_H_
#undef TESSERA_KERNELS_GEMM_ROWS_INL_H_
#else
#define TESSERA_KERNELS_GEMM_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_accumulators-inl.h"
#include "compile/host/kernels/gemm/gemm_ahead.h"
#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_pack-inl.h"
#include "compile/host/kernels/gemm/gemm_pack_bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::int64_t kStepsAhead = 8;  // prefetched

// Floats of B in place, or packed words.
struct FloatColumns {
  using T = float;
  static constexpr std::int64_t kTerms = 1;
  static HWY_INLINE V vector(const RowsArgs& args, std::int64_t step, std::int64_t column) {
    return hn::LoadU(D(), static_cast<const float*>(args.b) + args.b_k[step] + column);
  }
  static HWY_INLINE V some(const RowsArgs& args, std::int64_t step, std::int64_t column,
                           std::int64_t count) {
    const float* from = static_cast<const float*>(args.b) + args.b_k[step] + column;
#if HWY_TARGET == HWY_AVX3
    return hn::MaskedLoad(hn::FirstN(D(), static_cast<std::size_t>(count)), D(), from);
#else
    HWY_ALIGN float part[static_cast<std::size_t>(kLanes)] = {};
    for (std::int64_t i = 0; i < count; ++i) part[i] = from[i];
    return hn::Load(D(), part);
#endif
  }
};

// Terms of bf16 in place, as words: f32 or pairs.
template <class To>
struct HalfColumns {
  using T = std::uint16_t;
  static constexpr std::int64_t kTerms = To::kTerms;
  static HWY_INLINE V vector(const RowsArgs& args, std::int64_t step, std::int64_t column) {
    return some(args, step, column, kLanes);
  }
  static HWY_INLINE V some(const RowsArgs& args, std::int64_t step, std::int64_t column,
                           std::int64_t count) {
    const auto* from = static_cast<const std::uint16_t*>(args.b) + column;
    const V32 first = load_lanes(from + args.b_k[kTerms * step], count);
    if constexpr (kTerms == 1) return hn::BitCast(D(), To::word(first, first));
    const bool is_alone = args.missing[step] != 0;
    const V32 second =
        is_alone ? hn::Zero(D32()) : load_lanes(from + args.b_k[2 * step + 1], count);
    return hn::BitCast(D(), To::word(first, second));
  }
};

template <class Source>
HWY_INLINE void prefetch(const RowsArgs& args, std::int64_t step, std::int64_t column) {
  constexpr auto kPerLine = static_cast<std::int64_t>(kLineBytes / sizeof(typename Source::T));
  if (column % kPerLine != 0) return;
  for (std::int64_t term = 0; term < Source::kTerms; ++term) {
    hwy::Prefetch(static_cast<const typename Source::T*>(args.b) +
                  args.b_k[Source::kTerms * step + term] + column);
  }
}

// One term of A per row.
struct RowTerms {
  const float* a;
  HWY_INLINE const float* at(int r) const { return a + r; }
};

template <int kRows, int kVecs, class Sums>
HWY_INLINE void load_sums(const RowsArgs& args, std::int64_t column, Sums& acc) {
  if (!args.resumes) return acc.zero();
  const float* sums = args.sums + column;
  for (int i = 0; i < kRows * kVecs; ++i)
    acc.v[i] = hn::LoadU(D(), sums + i / kVecs * args.sums_stride + i % kVecs * kLanes);
}

template <int kRows, int kVecs, class Sums>
HWY_INLINE void store_sums(const RowsArgs& args, std::int64_t column, const Sums& acc) {
  float* sums = args.sums + column;
  for (int i = 0; i < kRows * kVecs; ++i)
    hn::StoreU(acc.v[i], D(), sums + i / kVecs * args.sums_stride + i % kVecs * kLanes);
}

template <class Source, class Product, int kRows, int kVecs, bool kIsPartial>
HWY_INLINE void sum_columns(const RowsArgs& args, std::int64_t column) {
  Accumulators<kRows, TileWidth<D, kVecs>> acc;
  load_sums<kRows, kVecs>(args, column, acc);
  const std::int64_t last = args.steps_to_end - 1;
  RowTerms a{args.a};
  for (std::int64_t step = 0; step < args.steps; ++step) {
    const std::int64_t later = std::min(step + kStepsAhead, last);
    V x[count(kVecs)];
    for (int j = 0; j < kVecs; ++j) {
      const std::int64_t at = column + j * kLanes;
      if constexpr (kIsPartial) {
        x[j] = Source::some(args, step, at, args.columns - at);
      } else {
        x[j] = Source::vector(args, step, at);
        prefetch<Source>(args, later, at);
      }
    }
    acc.template step<Product>(a, x);
    a.a += kRows;
  }
  store_sums<kRows, kVecs>(args, column, acc);
}

// As many vectors of accumulators as fit the registers beside those of B.
inline constexpr int kRowSums = kTileRows * kMaxTileVectors > 16 ? 16 : kTileRows > 4 ? 8 : 2;

template <class Source, class Product, int kRows>
void sum_rows(const RowsArgs& args) {
  constexpr int kMost = kRowSums / kRows > 0 ? kRowSums / kRows : 1;
  std::int64_t column = 0;
  for (; column + kMost * kLanes <= args.columns; column += kMost * kLanes)
    sum_columns<Source, Product, kRows, kMost, false>(args, column);
  if constexpr (kMost > 2) {
    for (; column + 2 * kLanes <= args.columns; column += 2 * kLanes)
      sum_columns<Source, Product, kRows, 2, false>(args, column);
  }
  for (; column + kLanes <= args.columns; column += kLanes)
    sum_columns<Source, Product, kRows, 1, false>(args, column);
  if (column < args.columns) sum_columns<Source, Product, kRows, 1, true>(args, column);
}

// --- B with adjacent k: a vector of columns is transposed in registers

// Floats. A block has 16 bytes of each column.
struct FloatTerms {
  using T = float;
  static constexpr int kTerms = 1;
  static constexpr int kSteps = 4;                            // of a block
  static constexpr int kStepsOfLine = kLanes == 16 ? 16 : 0;  // 0: registers hold no lines
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  static HWY_INLINE void block(const float* const* columns, std::int64_t k, V* steps) {
    load_transposed(D(), TableRows{columns}, k, steps);
  }
  // Four blocks. The blocks of a column are read one after the other, so that its line is read
  // once.
  static HWY_INLINE void line(const float* const* columns, std::int64_t k, V* steps) {
    const TableRows rows{columns};
    V blocks[4][4];
    for (int i = 0; i < 4; ++i) blocks[0][i] = load_blocks<0>(D(), rows, k + 4 * i);
    for (int i = 0; i < 4; ++i) blocks[1][i] = load_blocks<1>(D(), rows, k + 4 * i);
    for (int i = 0; i < 4; ++i) blocks[2][i] = load_blocks<2>(D(), rows, k + 4 * i);
    for (int i = 0; i < 4; ++i) blocks[3][i] = load_blocks<3>(D(), rows, k + 4 * i);
    for (int i = 0; i < 4; ++i) {
      transpose_blocks(D(), blocks[0][i], blocks[1][i], blocks[2][i], blocks[3][i], steps + 4 * i);
    }
  }
#endif
  static HWY_INLINE std::uint32_t word(const float* column, std::int64_t k, bool /*is_alone*/) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, column + k, sizeof(bits));
    return bits;
  }
};

// Terms of bf16, as words.
template <class To>
struct HalfTerms {
  using T = std::uint16_t;
  static constexpr int kTerms = To::kTerms;
  static constexpr int kSteps = 8 / kTerms;
  static constexpr int kStepsOfLine = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  static HWY_INLINE void block(const std::uint16_t* const* columns, std::int64_t k, V* steps) {
    V32 pairs[4];
    load_transposed(columns, k, pairs);
    for (int i = 0; i < 4; ++i) {
      const V32 low = hn::ShiftLeft<16>(pairs[i]), high = hn::ShiftRight<16>(pairs[i]);
      if constexpr (kTerms == 2) {
        steps[i] = hn::BitCast(D(), hn::Or(low, high));
      } else {
        steps[2 * i] = hn::BitCast(D(), low);
        steps[2 * i + 1] = hn::BitCast(D(), hn::ShiftLeft<16>(high));
      }
    }
  }
#endif
  static HWY_INLINE std::uint32_t word(const std::uint16_t* column, std::int64_t k, bool is_alone) {
    return To::word(column[k], is_alone || kTerms == 1 ? std::uint16_t{0} : column[k + 1]);
  }
};

// The sums of `kVecs` vectors of columns. Lanes beyond the last column repeat it.
template <class Source, class Product, int kRows, int kVecs>
HWY_INLINE void sum_terms(const RowsArgs& args, std::int64_t column) {
  using T = typename Source::T;
  constexpr int kColumns = kVecs * kLanes;
  const T* columns[count(kColumns)];
  for (int i = 0; i < kColumns; ++i) {
    columns[i] = static_cast<const T*>(args.b) +
                 args.b_outer[std::min<std::int64_t>(column + i, args.columns - 1)] + args.b_k[0];
  }
  Accumulators<kRows, TileWidth<D, kVecs>> acc;
  load_sums<kRows, kVecs>(args, column, acc);
  RowTerms a{args.a};
  std::int64_t step = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  constexpr int kPerLine = static_cast<int>(kLineBytes / 16);  // blocks
  const bool is_alone = args.missing != nullptr && args.missing[args.steps - 1] != 0;
  const std::int64_t whole = args.steps - (is_alone ? 1 : 0);
  if constexpr (Source::kStepsOfLine > 0 && kVecs == 1) {
    for (; step + Source::kStepsOfLine <= whole; step += Source::kStepsOfLine) {
      for (int i = 0; i < kLanes; ++i) prefetch_far(columns[i] + step);
      V of_columns[count(Source::kStepsOfLine)];
      Source::line(columns, step, of_columns);
      for (int s = 0; s < Source::kStepsOfLine; ++s) {
        acc.template step<Product>(a, of_columns + s);
        a.a += kRows;
      }
    }
  }
  for (int turn = 0; step + Source::kSteps <= whole; step += Source::kSteps) {
    const std::int64_t k = step * Source::kTerms;
    for (int i = turn; i < kColumns; i += kPerLine) prefetch_far(columns[i] + k);
    turn = (turn + 1) % kPerLine;
    V of_columns[count(kVecs)][count(Source::kSteps)];
    for (int j = 0; j < kVecs; ++j) Source::block(columns + j * kLanes, k, of_columns[j]);
    for (int s = 0; s < Source::kSteps; ++s) {
      V x[count(kVecs)];
      for (int j = 0; j < kVecs; ++j) x[j] = of_columns[j][s];
      acc.template step<Product>(a, x);
      a.a += kRows;
    }
  }
#endif
  for (; step < args.steps; ++step) {
    HWY_ALIGN std::uint32_t words[count(kColumns)];
    const bool is_last_alone = args.missing != nullptr && args.missing[step] != 0;
    for (int i = 0; i < kColumns; ++i)
      words[i] = Source::word(columns[i], step * Source::kTerms, is_last_alone);
    V x[count(kVecs)];
    for (int j = 0; j < kVecs; ++j) x[j] = hn::BitCast(D(), hn::Load(D32(), words + j * kLanes));
    acc.template step<Product>(a, x);
    a.a += kRows;
  }
  store_sums<kRows, kVecs>(args, column, acc);
}

// Whether all columns need the same set of L1, which holds lines of only a few of them.
template <class T>
bool do_columns_compete(const RowsArgs& args) {
  if (args.columns < 2) return false;
  const std::int64_t apart = args.b_outer[1] - args.b_outer[0];
  return (apart & -apart) * static_cast<std::int64_t>(sizeof(T)) >= kWayBytes;
}

template <class Source, class Product, int kRows>
void sum_rows_of_terms(const RowsArgs& args) {
  const bool is_narrow = Source::kStepsOfLine > 0 || do_columns_compete<typename Source::T>(args);
  std::int64_t column = 0;
  for (; !is_narrow && column + kLanes < args.columns; column += 2 * kLanes)
    sum_terms<Source, Product, kRows, 2>(args, column);
  for (; column < args.columns; column += kLanes)
    sum_terms<Source, Product, kRows, 1>(args, column);
}

template <class Source, class Product>
RowsKernels term_kernels() {
  return {&sum_rows_of_terms<Source, Product, 1>, &sum_rows_of_terms<Source, Product, 2>,
          &sum_rows_of_terms<Source, Product, 3>, &sum_rows_of_terms<Source, Product, 4>};
}

template <class Source, class Product>
RowsKernels rows_kernels() {
  static_assert(kMostFewRows == 4);
  return {&sum_rows<Source, Product, 1>, &sum_rows<Source, Product, 2>,
          &sum_rows<Source, Product, 3>, &sum_rows<Source, Product, 4>};
}

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_ROWS_INL_H_
