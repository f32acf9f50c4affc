// Eigenvectors of symmetric tridiagonal matrices.
#pragma once

#include <cstdint>

#include "compile/host/kernels/linalg/matrix_memory.h"

namespace tessera::kernels {

struct Tridiagonal {
  std::int64_t size;
  double* diagonal;
  double* beside;
};

/// The diagonal becomes the eigenvalues in ascending order, and row k of `vectors` [size, size] the
/// eigenvector of the k-th. Elements of `t` are about 1 or less. Returns whether the iteration
/// converged.
template <typename T>
bool solve_tridiagonal(const Tridiagonal& t, T* vectors);

}  // namespace tessera::kernels
