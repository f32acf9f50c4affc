// Householder reflections I - tau * v * transpose(v), many at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/host/kernels/linalg/matrix_memory.h"
#include "compile/host/kernels/linalg/strips.h"

namespace tessera::kernels {

/// Reflections of a block; a multiple of the width of strips.
inline constexpr std::int64_t kReflections = 32;

template <typename T>
struct Reflection {
  T tau;
  T length;  // what the first element becomes, while the others become 0
};
/// The reflection that makes all of `count` elements but the first one zero. `x` becomes its
/// vector, which begins with 1.
template <typename T>
Reflection<T> make_reflection(std::int64_t count, T* x);

/// The product of up to kReflections reflections: I - v * t * transpose(v).
template <typename T>
struct ReflectionBlock {
  std::int64_t first;  // v has zeros in the rows before
  std::int64_t rows;   // of v from there on
  std::int64_t count;
  const T* v;             // row-major, [rows, kReflections]
  const T* v_transposed;  // [count, rows]
  const T* t;             // [count, kReflections]
  const T* t_transposed;
};

/// `v` has the vectors as columns: row-major, [rows, kReflections], with their ones and zeros.
template <typename T>
ReflectionBlock<T> make_block(MatrixMemory& memory, std::int64_t first, std::int64_t rows,
                              std::int64_t count, const T* v, const T* taus);

/// Multiplies the strips of x from `first_strip` on by the product, or by its transpose.
template <typename T>
void apply(const ReflectionBlock<T>& block, bool is_transposed, const Strips<T>& x,
           std::int64_t first_strip);

/// The first `cols` columns of the product of all blocks. Blocks are in the order of their first
/// rows. Each block has zeros in at least as many rows as the blocks before it have vectors.
template <typename T>
Strips<T> product_of(MatrixMemory& memory, const std::vector<ReflectionBlock<T>>& blocks,
                     std::int64_t rows, std::int64_t cols);

}  // namespace tessera::kernels
