// The groups of vector kernels that find_tile_kernel searches, each compiled once per instruction
// set.
#pragma once

#include <span>
#include <string_view>

#include "compile/host/kernels/tile/elementwise.h"

namespace tessera::kernels::elementwise {

struct Entry {
  std::string_view name;
  DType dtype;
  TileKernel kernel;
};

// The kernels for this machine.
std::span<const Entry> arithmetic_entries();  // f32
std::span<const Entry> function_entries();    // f32: transcendental functions
std::span<const Entry> signed_entries();      // i32
std::span<const Entry> unsigned_entries();    // u32
std::span<const Entry> logical_entries();     // bool, and conversions between dtypes
std::span<const Entry> bf16_entries();        // between bf16 in memory and f32 lanes

/// All groups that implement ops, for tests.
inline constexpr auto kFamilies = {&arithmetic_entries, &function_entries, &signed_entries,
                                   &unsigned_entries, &logical_entries};

}  // namespace tessera::kernels::elementwise
