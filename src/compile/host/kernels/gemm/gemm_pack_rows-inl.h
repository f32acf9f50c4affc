// Packs bf16 for A of tile registers: row by row, in blocks. Compiled once per instruction set.
#if defined(TESSERA_KERNELS_GEMM_PACK_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_PACK_ROWS_INL_H_
#undef TESSERA_KERNELS_GEMM_PACK_ROWS_INL_H_
#else
#define TESSERA_KERNELS_GEMM_PACK_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <hwy/highway.h>
#include <type_traits>

#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_pack_bf16-inl.h"
#include "compile/host/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The number of terms of the block of steps from `step` on. Missing terms are at its end.
inline std::int64_t terms_of_block(const PackArgs& args, std::int64_t step) {
  std::int64_t terms = 2 * args.block;
  for (std::int64_t s = step + args.block; s-- > step && args.missing[s] != 0;)
    terms -= args.missing[s];
  return terms;
}

// Copies a row of a block with `terms` adjacent terms. May write a whole vector: what comes after
// the row is written later, or is a gap.
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

// If the first `terms` terms of a block consist of pieces of adjacent terms, all of one size: that
// size. Otherwise 0.
inline std::int64_t terms_of_piece(const std::int32_t* k_run, std::int64_t terms) {
  for (const std::int64_t size : {16, 8, 4, 2}) {
    bool fits = terms % size == 0;
    for (std::int64_t term = 0; fits && term < terms; term += size) fits = k_run[term] >= size;
    if (fits) return size;
  }
  return 0;
}

#if HWY_TARGET == HWY_AVX3
inline constexpr int kRowsAtOnce = 4;  // share the loads of places
inline constexpr std::int64_t kHalfTerms = 16;
using HalfRow = hn::FixedTag<std::uint16_t, kHalfTerms>;
using HalfRows = hn::Vec<HalfRow>[kRowsAtOnce];

// Half a row that repeats a piece.
template <int kTerms>
HWY_INLINE hn::Vec<HalfRow> repeated(const std::uint16_t* piece) {
  const HalfRow d;
  if constexpr (kTerms == 16) {
    return hn::LoadU(d, piece);
  } else if constexpr (kTerms == 8) {
    return hn::LoadDup128(d, piece);
  } else {
    using Word = std::conditional_t<kTerms == 4, std::uint64_t, std::uint32_t>;
    Word word;
    std::memcpy(&word, piece, sizeof word);
    return hn::BitCast(d, hn::Set(hn::Repartition<Word, HalfRow>(), word));
  }
}

// Loads the first `count` pieces, each to its place. More ports can load and blend than shuffle.
template <int kTerms, int kPiece = 0>
HWY_INLINE void put_pieces(const std::uint16_t* const* rows, const std::int64_t* places, int count,
                           HalfRows& to) {
  if constexpr (kPiece * kTerms < kHalfTerms) {
    if (kPiece >= count) return;
    constexpr int kWords = kTerms / 2, kMask = ((1 << kWords) - 1) << kPiece * kWords;
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const auto piece = repeated<kTerms>(rows[i] + places[kPiece]);
      to[i].raw = _mm256_blend_epi32(to[i].raw, piece.raw, kMask);
    }
    put_pieces<kTerms, kPiece + 1>(rows, places, count, to);
  }
}

// Loads the first `terms` terms of half a row, and fills the rest with padding.
template <int kTerms>
HWY_INLINE void load_halves(const std::uint16_t* const* rows, const std::int64_t* places,
                            std::int64_t terms, std::uint16_t padding, HalfRows& to) {
  for (auto& half : to) half = hn::Set(HalfRow(), padding);
  put_pieces<kTerms>(rows, places, static_cast<int>(terms) / kTerms, to);
}
#endif

// Copies rows of a block whose terms are pieces of kTerms adjacent terms. Like copy_row(), it may
// write beyond the end of a row: half a row.
template <int kTerms>
void copy_pieces(const std::uint16_t* src, const std::int64_t* outer, std::int64_t rows,
                 std::int64_t last, const std::int64_t* k, std::int64_t terms, const PackArgs& args,
                 std::uint16_t* dst) {
  const std::int64_t whole = 2 * args.block;
#if HWY_TARGET == HWY_AVX3
  std::int64_t places[2 * kHalfTerms / kTerms] = {};
  for (std::int64_t i = 0; i * kTerms < terms; ++i) places[i] = k[i * kTerms];
  const std::int64_t first = std::min(terms, kHalfTerms);
  for (std::int64_t row = 0; row < rows; row += kRowsAtOnce, dst += kRowsAtOnce * whole) {
    const std::uint16_t* from[kRowsAtOnce];
    for (int i = 0; i < kRowsAtOnce; ++i) from[i] = src + outer[std::min(row + i, last)];
    HalfRows lower, upper;
    load_halves<kTerms>(from, places, first, args.padding, lower);
    const bool has_upper = whole > kHalfTerms;
    if (has_upper)
      load_halves<kTerms>(from, places + kHalfTerms / kTerms, terms - first, args.padding, upper);
    // Row by row: what is written beyond the end of a row belongs to the next one.
    for (int i = 0; i < kRowsAtOnce; ++i) {
      hn::StoreU(lower[i], HalfRow(), dst + i * whole);
      if (has_upper) hn::StoreU(upper[i], HalfRow(), dst + i * whole + kHalfTerms);
    }
  }
#else
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
#endif
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

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
// Packs the first `terms` terms of a block, at the offsets `k`, for 16 adjacent lanes. Two terms of
// a lane are a word of its row.
template <bool kIsWhole>
void interleave_lanes(const std::uint16_t* src, const std::int64_t* k, std::int64_t terms,
                      const PackArgs& args, float* dst) {
  namespace blocks = kernels::HWY_NAMESPACE;
  constexpr std::int64_t kSide = blocks::kSquare;
  const hn::FixedTag<std::uint16_t, 16> d;
  const blocks::Square words;
  const auto padding = hn::Set(d, args.padding);
  const auto lanes_of = [&](std::int64_t term) HWY_ATTR {
    return kIsWhole || term < terms ? hn::LoadU(d, src + k[term]) : padding;
  };
  for (std::int64_t step = 0; step < args.block; step += kSide) {
    blocks::SquareRow lower[kSide], upper[kSide];  // lanes 0-3 and 8-11, and the others
    for (std::int64_t i = 0; i < kSide; ++i) {
      const auto first = lanes_of(2 * (step + i)), second = lanes_of(2 * (step + i) + 1);
      lower[i] = hn::BitCast(words, hn::InterleaveLower(d, first, second));
      upper[i] = hn::BitCast(words, hn::InterleaveUpper(d, first, second));
    }
    blocks::TransposeSquare(lower);
    blocks::TransposeSquare(upper);
    const auto mask = hn::FirstN(words, static_cast<std::size_t>(args.block - step));
    for (std::int64_t i = 0; i < kSide; ++i) {
      float* to = dst + (i / 4 * 8 + i % 4) * args.block + step;
      if (kIsWhole) {
        hn::StoreU(lower[i], words, to);
        hn::StoreU(upper[i], words, to + 4 * args.block);
      } else {
        hn::BlendedStore(lower[i], mask, words, to);
        hn::BlendedStore(upper[i], mask, words, to + 4 * args.block);
      }
    }
  }
}
#endif

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
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  if (rows == last + 1 - begin && args.outer_run[begin] >= rows) {
    const auto* src = static_cast<const std::uint16_t*>(args.src) + args.outer[begin];
    auto* interleave =
        terms == 2 * kMaxBlockSteps ? &interleave_lanes<true> : &interleave_lanes<false>;
    for (std::int64_t row = 0; row < rows; row += kMaxBlockRows / 2)
      interleave(src + row, args.k + 2 * step, terms, args, dst + row * args.block);
    return;
  }
#endif
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
