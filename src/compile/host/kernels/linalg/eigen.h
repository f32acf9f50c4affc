// What the files that use Eigen share.
//
// They are compiled for the least instruction set that the library runs on, and without threads, so
// that bits are the same on every machine of an architecture. The namespace gets a name of its own
// (CMakeLists.txt): programs may use Eigen with other settings, and the linker would take either.
#pragma once

#include <Eigen/Core>
#include <cstdint>

#include "compile/host/kernels/linalg/finite.h"
#include "compile/host/kernels/linalg/linalg.h"

namespace tessera::kernels {

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <typename T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename T>
using Vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;

/// Eigen blocks its products by the sizes of caches, which decides the order of sums.
inline void fix_block_sizes() {
  [[maybe_unused]] static const bool is_set = [] {
    Eigen::setCpuCacheSizes(32 * 1024, 512 * 1024, 2 * 1024 * 1024);
    return true;
  }();
}

/// A copy, which Eigen has aligned: where its vectors begin does not depend on the caller.
template <typename T>
Matrix<T> loaded(const T* data, std::int64_t rows, std::int64_t cols) {
  fix_block_sizes();
  return Eigen::Map<const RowMajor<T>>(data, rows, cols);
}

template <typename Expression, typename T>
void store(const Expression& matrix, T* data) {
  Eigen::Map<RowMajor<T>>(data, matrix.rows(), matrix.cols()) = matrix;
}

}  // namespace tessera::kernels
