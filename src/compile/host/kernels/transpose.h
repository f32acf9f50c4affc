// Transposed copies of matrices.
#pragma once

#include <cstdint>

namespace tessera::kernels {

/// to[r * to_stride + c] = from[c * from_stride + r]; strides are in elements.
struct TransposedMatrix {
  std::int64_t rows;  // of the result
  std::int64_t columns;
  std::int64_t from_stride;
  std::int64_t to_stride;
};
/// Copies bits: elements may have any type of this size.
void transpose(const TransposedMatrix& matrix, const float* from, float* to);
void transpose(const TransposedMatrix& matrix, const std::uint8_t* from, std::uint8_t* to);
void transpose(const TransposedMatrix& matrix, const std::uint16_t* from, std::uint16_t* to);
void transpose(const TransposedMatrix& matrix, const std::uint32_t* from, std::uint32_t* to);
void transpose(const TransposedMatrix& matrix, const std::uint64_t* from, std::uint64_t* to);

}  // namespace tessera::kernels
