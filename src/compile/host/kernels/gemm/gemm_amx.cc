// The unit amx_bf16: products in tile registers, and the same in plain loops. Also tells what
// processors with AMX do slowly.
#include <algorithm>
#include <bit>
#include <cmath>

#include "compile/host/kernels/targets.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/gemm/gemm_amx.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm.h"
#include "compile/host/kernels/gemm/gemm_blocks-inl.h"
#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_pack_rows-inl.h"

#ifndef TESSERA_KERNELS_GEMM_AMX_ONCE
#define TESSERA_KERNELS_GEMM_AMX_ONCE

namespace tessera::kernels::gemm {
namespace {

#ifdef TESSERA_HAS_TILE_REGISTERS

// Not all compilers have names for these features. In a virtual machine CPUID takes microseconds.
constexpr unsigned kBf16InTiles = 1u << 22, kFp16 = 1u << 23, kTiles = 1u << 24;
bool has_features(unsigned features) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & features) == features;
}

// The system saves tile registers only for processes that asked for it. It refuses if a thread has
// an alternative stack for signals that is too small.
bool may_use_registers() {
  constexpr long kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}

// Fills words with bf16 of all kinds: near 1, near the least normal number, subnormal, infinite.
template <std::size_t size>
void fill(std::uint32_t seed, std::array<float, size>& words) {
  constexpr std::uint16_t kExponents[] = {127, 126, 64, 63, 62, 0, 128, 65};
  const auto next = [&] { return (seed = seed * 1664525u + 1013904223u) >> 16; };
  const auto half = [&] {
    const std::uint32_t exponent = next() % 512 == 0 ? 255 : kExponents[next() % 8];
    return (next() & 0x8000u) | exponent << 7 | (next() & 0x7fu);
  };
  for (float& word : words) {
    const std::uint32_t low = half();
    word = std::bit_cast<float>(low | half() << 16);
  }
}

template <class Registers>
std::array<float, kRegisterSize> product_of(const std::array<float, kRegisterSize>& a,
                                            const std::array<float, kRegisterSize>& b) {
  std::array<float, kRegisterSize> sums = {};
  Registers registers(kMaxBlockSteps);
  registers.template zero<0>();
  for (int i = 0; i < 2; ++i) {
    registers.template load_a<0>(a.data());
    registers.template load_b<0>(b.data(), kRegisterRows);
    registers.template multiply<0, 0, 0>();
  }
  registers.template store_sums<0>(sums.data());
  return sums;
}

// Whether the instruction computes what DotUnit defines.
bool is_as_defined() {
  std::array<float, kRegisterSize> a, b;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    fill(2 * seed, a);
    fill(2 * seed + 1, b);
    TileRegisters::begin(kMaxBlockSteps);
    const auto found = product_of<TileRegisters>(a, b);
    TileRegisters::end();
    const auto same = [](float x, float y) {
      return (std::isnan(x) && std::isnan(y)) ||
             std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
    };
    const auto wanted = product_of<EmulatedRegisters>(a, b);
    if (!std::equal(found.begin(), found.end(), wanted.begin(), same)) return false;
  }
  return true;
}

#endif

}  // namespace
}  // namespace tessera::kernels::gemm

#endif  // TESSERA_KERNELS_GEMM_AMX_ONCE

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {

Unit emulated_amx() {
  static const Kernels kTable = kernels_of_blocks<EmulatedRegisters>();
  return {.kernels = &kTable,
          .pack = &pack_bf16<AsPairsInOrder>,
          .pack_a = &pack_rows,
          .element_bytes = 2,
          .terms = 2,
          .block = kMaxBlockSteps};
}

Unit amx() {
#if HWY_TARGET == HWY_AVX3 && defined(TESSERA_HAS_TILE_REGISTERS)
  static const bool kHas =
      has_features(kBf16InTiles | kTiles) && may_use_registers() && is_as_defined();
  if (!kHas) return {};
  static const Kernels kTable = kernels_of_blocks<TileRegisters>();
  Unit unit = emulated_amx();
  unit.kernels = &kTable;
  unit.begin = &TileRegisters::begin;
  unit.end = &TileRegisters::end;
  return unit;
#else
  return {};
#endif
}

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::gemm {

HWY_EXPORT(amx);
HWY_EXPORT(emulated_amx);

Unit amx_bf16() { return HWY_DYNAMIC_DISPATCH(amx)(); }
Unit emulated_amx_bf16() { return HWY_DYNAMIC_DISPATCH(emulated_amx)(); }

}  // namespace tessera::kernels::gemm

namespace tessera::kernels {

// Intel's processors with AMX multiply half as many terms per second with vdpbf16ps as with fused
// multiply-adds. Virtual machines may hide AMX, but not FP16, which came with it.
bool is_slow_dot_unit([[maybe_unused]] DotUnit unit) {
#ifdef TESSERA_HAS_TILE_REGISTERS
  static const bool kIsSlow = __builtin_cpu_is("intel") && gemm::has_features(gemm::kFp16);
  return unit == DotUnit::avx512_bf16 && kIsSlow;
#else
  return false;
#endif
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
