// The families that make up the table of elementwise kernels, each compiled per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "compile/host/kernels/elementwise.h"

namespace tessera::kernels {

struct KernelEntry {
  std::string_view name;
  DType dtype;
  TileKernel kernel;
};

// Of the instruction set that is chosen at the time of the call.
std::span<const KernelEntry> float_kernels();
std::span<const KernelEntry> integer_kernels(DType dtype);
std::span<const KernelEntry> other_kernels();
/// Conversions from a dtype, named by the dtype of the result.
std::span<const KernelEntry> conversions(DType from);

/// Writes the random bits of n consecutive counters (see base/threefry.h).
using RandomBitsKernel = void (*)(const std::uint32_t* key, std::uint64_t first, std::uint32_t* out,
                                  std::size_t n);
RandomBitsKernel random_bits_kernel();

}  // namespace tessera::kernels
