// Bidiagonal form of square matrices.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/host/kernels/linalg/reflections.h"

namespace tessera::kernels {

/// A matrix with two diagonals, and the reflections that lead to it: a = left * b *
/// transpose(right).
template <typename T>
struct Bidiagonal {
  std::int64_t size;
  double* diagonal;
  double* above;  // above[i] is element (i, i + 1)
  std::vector<ReflectionBlock<T>> left, right;
};

/// Makes the square matrix bidiagonal. Afterwards `a` has nothing of use.
template <typename T>
Bidiagonal<T> make_bidiagonal(MatrixMemory& memory, const Strips<T>& a);

}  // namespace tessera::kernels
