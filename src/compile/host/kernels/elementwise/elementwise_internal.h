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
std::span<const Entry> arithmetic_entries();       // f32
std::span<const Entry> function_entries();         // f32: transcendental functions
std::span<const Entry> signed_entries();           // i32
std::span<const Entry> unsigned_entries();         // u32
std::span<const Entry> logical_entries();          // bool, and conversions between dtypes
std::span<const Entry> wide_arithmetic_entries();  // f64
std::span<const Entry> double_entries();           // f64: transcendental functions
std::span<const Entry> wide_signed_entries();      // i64
std::span<const Entry> wide_unsigned_entries();    // u64
std::span<const Entry> half_entries();             // between f16 or bf16 in memory and f32 lanes
std::span<const Entry> whole_entries();            // integers of 8 and 16 bits
std::span<const Entry> conversion_entries();  // from or to integers of 8, 16 and 64 bits and f64

/// The groups of kernels that implement ops. kFamilies are stages of narrow chains, kWideFamilies
/// of wide chains only.
inline constexpr auto kFamilies = {&arithmetic_entries, &function_entries, &signed_entries,
                                   &unsigned_entries, &logical_entries};
inline constexpr auto kWideFamilies = {&wide_arithmetic_entries, &double_entries,
                                       &wide_signed_entries, &wide_unsigned_entries};
inline constexpr auto kOtherFamilies = {&half_entries, &whole_entries, &conversion_entries};

}  // namespace tessera::kernels::elementwise
