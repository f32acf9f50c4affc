// Loops that reduce.cc chooses per instruction set.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string_view>

namespace tessera::kernels {

/// Integers in the order of floats, with -0 below +0; NaN must be set apart by the caller.
inline std::int32_t ordered_bits(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
inline float from_ordered_bits(std::int32_t ordered) {
  return std::bit_cast<float>(ordered ^ ((ordered >> 31) & 0x7fffffff));
}

/// The best instruction set of this machine that the kernels know.
std::string_view instruction_set();

// Run-time dispatched; see reduce_rows-inl.h.
float sum_lanes(const float* from, std::int64_t rows, std::int64_t row_stride, std::int64_t length);
void sum_columns(const float* from, std::int64_t rows, std::int64_t row_stride,
                 std::int64_t columns, float* to);
void add_row(float* a, const float* b, std::int64_t count);
float extreme_of_run(const float* from, std::int64_t length, bool is_min);

}  // namespace tessera::kernels
