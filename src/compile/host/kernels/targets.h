// The instruction sets for which the kernels are compiled. Include this before any Highway header.
//
// Every kernel gives the same bits on every target. Matrix products are sequences of fused
// multiply-adds, so targets without a hardware FMA are left out. The baseline that remains for
// machines without one (EMU128 or SCALAR) calls std::fma lane by lane. Vectors of unknown length
// are left out because the sizes of micro-tiles are fixed at compile time.
#pragma once

// A build for one machine sets this to the targets that the machine would not use.
#ifndef TESSERA_UNUSED_KERNELS
#define TESSERA_UNUSED_KERNELS 0
#endif

#define HWY_DISABLED_TARGETS                                                          \
  (TESSERA_UNUSED_KERNELS | HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | \
   HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
