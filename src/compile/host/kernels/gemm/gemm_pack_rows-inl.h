// Packs bf16 for A of tile registers: row by row, in blocks. Compiled once per instruction set.
#if defined(TESSERA_KERNELS_GEMM_PACK_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_PACK_ROWS_INL_H_
#undef TESSERA_KERNELS_GEMM_PACK_ROWS_INL_H_
#else
#define TESSERA_KERNELS_GEMM_PACK_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_pack_bf16-inl.h"
#include "compile/host/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The terms of the block of steps from `step` on. Those that are missing are at its end.
inline std::int64_t terms_of_block(const PackArgs& args, std::int64_t step) {
  std::int64_t terms = 2 * args.block;
  for (std::int64_t s = step + args.block; s-- > step && args.missing[s] != 0;)
    terms -= args.missing[s];
  return terms;
}

// Copies a row of a block whose `terms` are adjacent. May write one vector: what comes after the
// row is written later, or is a gap.
HWY_INLINE void copy_row(const std::uint16_t* src, std::int64_t terms, const PackArgs& args,
                         std::uint16_t* dst) {
  const hn::ScalableTag<std::uint16_t> d;
#if HWY_TARGET == HWY_AVX3
  if (terms == static_cast<std::int64_t>(hn::Lanes(d)))
    return hn::StoreU(hn::LoadU(d, src), d, dst);
  const auto mask = hn::FirstN(d, static_cast<std::size_t>(terms));
  const auto some = hn::MaskedLoad(mask, d, src);
  hn::StoreU(hn::IfThenElse(mask, some, hn::Set(d, args.padding)), d, dst);
#else
  (void)d;
  std::copy(src, src + terms, dst);
  std::fill(dst + terms, dst + 2 * args.block, args.padding);
#endif
}

// The number of adjacent terms in each of the pieces, all of one size, that make up the first
// `terms` terms of a block; 0 if they are no such pieces.
inline std::int64_t terms_of_piece(const std::int32_t* k_run, std::int64_t terms) {
  for (const std::int64_t size : {16, 8, 4, 2}) {
    bool fits = terms % size == 0;
    for (std::int64_t term = 0; fits && term < terms; term += size) fits = k_run[term] >= size;
    if (fits) return size;
  }
  return 0;
}

#if HWY_TARGET == HWY_AVX3
// Pieces of kTerms adjacent terms, each at its place, as one vector.
template <int kTerms, class D16>
HWY_INLINE hn::Vec<D16> load_pieces(D16 d, const std::uint16_t* from, const std::int64_t* places) {
  constexpr auto kCount = static_cast<int>(hn::MaxLanes(D16()));
  if constexpr (kCount == kTerms) {
    return hn::LoadU(d, from + *places);
  } else {
    const hn::Half<D16> half;
    return hn::Combine(d, load_pieces<kTerms>(half, from, places + kCount / kTerms / 2),
                       load_pieces<kTerms>(half, from, places));
  }
}
#endif

// Copies rows of a block whose terms are pieces of kTerms adjacent ones.
template <int kTerms>
void copy_pieces(const std::uint16_t* src, const std::int64_t* outer, std::int64_t rows,
                 std::int64_t last, const std::int64_t* k, std::int64_t terms, const PackArgs& args,
                 std::uint16_t* dst) {
  const std::int64_t whole = 2 * args.block;
#if HWY_TARGET == HWY_AVX3
  const hn::ScalableTag<std::uint16_t> wide;
  constexpr auto kMost = static_cast<std::int64_t>(hn::MaxLanes(wide));
  if constexpr (kTerms >= 8) {
    if (whole == kMost) {
      std::int64_t places[kMost / kTerms];
      for (std::int64_t i = 0; i < kMost / kTerms; ++i)
        places[i] = k[i * kTerms < terms ? i * kTerms : 0];
      const auto mask = hn::FirstN(wide, static_cast<std::size_t>(terms));
      const auto padding = hn::Set(wide, args.padding);
      for (std::int64_t row = 0; row < rows; ++row, dst += whole) {
        const auto pieces = load_pieces<kTerms>(wide, src + outer[std::min(row, last)], places);
        hn::StoreU(hn::IfThenElse(mask, pieces, padding), wide, dst);
      }
      return;
    }
  }
#endif
  const hn::CappedTag<std::uint16_t, static_cast<std::size_t>(kTerms)> d;
  constexpr auto kAtOnce = static_cast<std::int64_t>(hn::MaxLanes(d));
  for (std::int64_t row = 0; row < rows; ++row, dst += whole) {
    const std::uint16_t* from = src + outer[std::min(row, last)];
    for (std::int64_t term = 0; term < terms; term += kTerms) {
      for (std::int64_t i = 0; i < kTerms; i += kAtOnce)
        hn::StoreU(hn::LoadU(d, from + k[term] + i), d, dst + term + i);
    }
    std::fill(dst + terms, dst + whole, args.padding);
  }
}

// Turns steps of kMaxBlockRows lanes into rows of steps.
HWY_INLINE void transpose_block(const float* steps, std::int64_t rows, std::int64_t block,
                                float* dst) {
  namespace blocks = kernels::HWY_NAMESPACE;
  constexpr std::int64_t kSide = blocks::kSquare;
  const std::int64_t whole = block / kSide * kSide;
  for (std::int64_t row = 0; row < rows; row += kSide) {
    for (std::int64_t step = 0; step < whole; step += kSide) {
      const blocks::Square d;
      blocks::SquareRow square[kSide];
      for (std::int64_t i = 0; i < kSide; ++i)
        square[i] = hn::LoadU(d, steps + (step + i) * kMaxBlockRows + row);
      blocks::TransposeSquare(square);
      for (std::int64_t i = 0; i < kSide; ++i)
        hn::StoreU(square[i], d, dst + (row + i) * block + step);
    }
    for (std::int64_t step = whole; step < block; ++step) {
      for (std::int64_t i = row; i < row + kSide; ++i)
        dst[i * block + step] = steps[step * kMaxBlockRows + i];
    }
  }
}

// Packs the block of steps from `step` on of one tile.
HWY_INLINE void pack_block(const PackArgs& args, int tile, std::int64_t step) {
  const std::int64_t begin = args.starts[tile];
  const std::int64_t last = args.starts[tile + 1] - 1;
  // Rows that fill up a tile register repeat the last row: their products are never stored.
  const std::int64_t rows = ceil_div(last + 1 - begin, kMaxBlockRows / 2) * (kMaxBlockRows / 2);
  float* dst = args.dst + tile * args.tile_stride + step * args.ld;
  const std::int64_t terms = terms_of_block(args, step);
  if (args.k_run[2 * step] >= terms) {
    const auto* src = static_cast<const std::uint16_t*>(args.src) + args.k[2 * step];
    auto* to = reinterpret_cast<std::uint16_t*>(dst);
    for (std::int64_t i = 0; i < rows; ++i, to += 2 * args.block)
      copy_row(src + args.outer[std::min(begin + i, last)], terms, args, to);
    return;
  }
  const auto copy = [&](const auto& pieces) {
    pieces(static_cast<const std::uint16_t*>(args.src), args.outer + begin, rows, last - begin,
           args.k + 2 * step, terms, args, reinterpret_cast<std::uint16_t*>(dst));
  };
  switch (terms_of_piece(args.k_run + 2 * step, terms)) {
    case 16:
      return copy(copy_pieces<16>);
    case 8:
      return copy(copy_pieces<8>);
    case 4:
      return copy(copy_pieces<4>);
    case 2:
      return copy(copy_pieces<2>);
    default:
      break;
  }
  HWY_ALIGN float steps[kMaxBlockSteps * kMaxBlockRows];
  PackArgs one = args;
  one.k += 2 * step;
  one.k_run += 2 * step;
  one.missing += step;
  one.k_count = args.block;
  one.starts += tile;
  one.tiles = 1;
  one.dst = steps;
  pack_bf16<AsPairsInOrder>(one);
  transpose_block(steps, rows, args.block, dst);
}

/// Element (row o of tile t, step s) goes to dst[t * tile_stride + b * block * ld + o * block + s -
/// b * block], where b is the number of the block that holds the step.
inline void pack_rows(const PackArgs& args) {
  for (int tile = 0; tile < args.tiles; ++tile) {
    for (std::int64_t step = 0; step < args.k_count; step += args.block)
      pack_block(args, tile, step);
  }
}

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_PACK_ROWS_INL_H_
