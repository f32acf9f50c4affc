// The ways to multiply bf16: widened to f32 while packing, or by special instructions.
#include <algorithm>
#include <bit>

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/gemm/gemm_bf16.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_pack_bf16-inl.h"
#include "compile/host/kernels/gemm/gemm_rows-inl.h"
#include "compile/host/kernels/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {

Unit portable() {
  return {.kernels = nullptr,
          .pack = &pack_bf16<AsFloats>,
          .element_bytes = 2,
          .rows_in_place = rows_kernels<HalfColumns<AsFloats>, FusedProduct>(),
          .rows_of_adjacent_terms = term_kernels<HalfTerms<AsFloats>, FusedProduct>()};
}

#if HWY_TARGET == HWY_AVX3 && (HWY_COMPILER_GCC || HWY_COMPILER_CLANG)

struct PairProduct {
  using Element = std::uint16_t;

  template <class V>
  static HWY_INLINE V add(V a, V b, V c) {
    return add_pairs(a, b, c);
  }
  template <class V>
  static HWY_INLINE V add_of_one(const float* a, V b, V c) {
    if constexpr (sizeof(c.raw) == 64) {
      asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(c.raw) : "v"(b.raw), "m"(*a));
    } else {
      asm("vdpbf16ps %2%{1to8%}, %1, %0" : "+v"(c.raw) : "v"(b.raw), "m"(*a));
    }
    return c;
  }
};

// The same for words in place: offsets count words.
struct WordProduct : PairProduct {
  using Element = float;
};

// Terms whose sum reveals the order of the additions, the rounding and the handling of subnormals.
struct Probe {
  float sum, x0, y0, x1, y1;
};
constexpr Probe kProbes[] = {{1.0F, 0x1p24F, 1.0F, -0x1p24F, 1.0F},
                             {0x1p24F, 1.0F, 1.0F, 1.0F, 1.0F},
                             {0x1p-126F, -0x1p-90F, 0x1p-60F, -0.0F, 1.0F},
                             {0x1p-126F, -0x1p-90F, 0x1p-61F, -0.0F, 1.0F},
                             {0x1p-126F, 0x1.8p-100F, -0x1p-26F, 0x1.8p-100F, 0x1p-26F},
                             {0.0F, 0x1p-130F, 0x1p100F, 0x1p100F, -0x1p-130F},
                             {0x1p127F, 0x1p127F, 1.0F, -0x1p127F, 1.0F},
                             {-0.0F, -0.0F, 1.0F, 0x1p-80F, -0x1p-80F}};

// Whether the instruction computes what DotUnit defines.
bool is_as_defined() {
  return std::all_of(std::begin(kProbes), std::end(kProbes), [](const Probe& p) {
    const auto pair = [](float first, float second) {
      return hn::BitCast(D(), hn::Set(D32(), (std::bit_cast<std::uint32_t>(first) & 0xffff0000u) |
                                                 std::bit_cast<std::uint32_t>(second) >> 16));
    };
    const V found = PairProduct::add(pair(p.x0, p.x1), pair(p.y0, p.y1), hn::Set(D(), p.sum));
    const float first = add_product(DotUnit::avx512_bf16, p.sum, p.x0, p.y0);
    const float wanted = add_product(DotUnit::avx512_bf16, first, p.x1, p.y1);
    return std::bit_cast<std::uint32_t>(hn::GetLane(found)) == std::bit_cast<std::uint32_t>(wanted);
  });
}

void make_words(const WordsArgs& args) {
  const V32 padding = hn::Set(D32(), args.padding);
  for (std::int64_t i = 0; i < args.count; ++i) {
    const std::uint16_t* first = args.first + i * args.step;
    const std::uint16_t* second = args.second == nullptr ? nullptr : args.second + i * args.step;
    float* to = args.to + i * args.to_step;
    for (std::int64_t at = 0; at < args.columns; at += kLanes) {
      const std::int64_t rest = args.columns - at;
      const V32 low = second == nullptr ? padding : load_lanes(second + at, rest);
      store_word(AsPairs::word(load_lanes(first + at, rest), low), to + at);
    }
  }
}

Unit avx512_bf16() {
  static const bool kHas = __builtin_cpu_supports("avx512bf16") && is_as_defined();
  if (!kHas) return {};
  static const Kernels kTable = [] {
    Kernels out = kernels_without_tiles();
    fill_tiles<Operands::packed, PairProduct>(out);
    fill_tiles<Operands::a_by_table, PairProduct>(out);
    return out;
  }();
  return {.kernels = &kTable,
          .pack = &pack_bf16<AsPairs>,
          .element_bytes = 2,
          .terms = 2,
          .reads_pairs = true,
          .rows_in_place = rows_kernels<HalfColumns<AsPairs>, PairProduct>(),
          .rows_of_adjacent_terms = term_kernels<HalfTerms<AsPairs>, PairProduct>(),
          .rows_packed = rows_kernels<FloatColumns, PairProduct>()};
}

Unit words() {
  if (avx512_bf16().kernels == nullptr) return {};
  static const Kernels kTable = [] {
    Kernels out = *avx512_bf16().kernels;  // packed operands are words there, too
    fill_tiles<Operands::b_in_place, WordProduct>(out);
    fill_tiles<Operands::a_by_table, WordProduct>(out);
    fill_tiles<Operands::by_tables, WordProduct>(out);
    return out;
  }();
  return {.kernels = &kTable, .reads_in_place = true, .make_words = &make_words};
}

#else

Unit avx512_bf16() { return {}; }
Unit words() { return {}; }

#endif

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

namespace gemm {

HWY_EXPORT(portable);
HWY_EXPORT(avx512_bf16);
HWY_EXPORT(words);

Unit unit_of_bf16(DotUnit unit) {
  if (unit == DotUnit::amx_bf16) return amx_bf16();
  if (unit == DotUnit::avx512_bf16) return HWY_DYNAMIC_DISPATCH(avx512_bf16)();
  Unit result = HWY_DYNAMIC_DISPATCH(portable)();
  result.kernels = &kernels();
  result.rows_packed = rows_kernels_of_f32();
  return result;
}

Unit unit_of_words() {
  Unit result = HWY_DYNAMIC_DISPATCH(words)();
  result.pack = kernels().pack;
  return result;
}

}  // namespace gemm

bool has_dot_unit(DotUnit unit) { return gemm::unit_of_bf16(unit).kernels != nullptr; }

}  // namespace tessera::kernels
#endif  // HWY_ONCE
