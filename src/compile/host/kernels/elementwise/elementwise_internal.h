// The groups of vector kernels that find_tile_kernel searches, each compiled once per instruction
// set.
#pragma once

#include <span>
#include <string_view>

#include "compile/host/kernels/elementwise/elementwise.h"

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
std::span<const Entry> half_entries();        // between f16 or bf16 in memory and f32 lanes
std::span<const Entry> whole_entries();       // integers of 8, 16 and 64 bits
std::span<const Entry> double_entries();      // f64
std::span<const Entry> conversion_entries();  // between dtypes of which one has no stages

/// All groups of kernels that are stages and implement ops, for tests.
inline constexpr auto kFamilies = {&arithmetic_entries, &function_entries, &signed_entries,
                                   &unsigned_entries, &logical_entries};

}  // namespace tessera::kernels::elementwise
