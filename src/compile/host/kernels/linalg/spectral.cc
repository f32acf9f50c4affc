// Eigenvectors and singular vectors.
//
// Both are computed as f64 also for f32: rounded results are right in all but the last place, and
// half of the code is compiled.
#include <Eigen/Eigenvalues>
#include <Eigen/SVD>
#include <cmath>

#include "compile/host/kernels/linalg/eigen.h"

namespace tessera::kernels {

namespace {

/// Whether the first element that is larger than half of the largest one is negative. The largest
/// element itself would not do: rounding decides between two of equal size.
template <typename Line>
bool is_flipped(const Line& vector) {
  const auto least = vector.cwiseAbs().maxCoeff() / 2;
  for (Eigen::Index i = 0; i < vector.size(); ++i) {
    if (std::abs(vector(i)) > least) return vector(i) < 0;
  }
  return false;
}

}  // namespace

template <typename T>
void eigh(std::int64_t n, const T* a, T* eigenvalues, T* v) {
  const bool is_whole = is_lower_triangle_finite(n, a);
  Eigen::SelfAdjointEigenSolver<Matrix<double>> solver(n);
  if (is_whole && n > 0) solver.compute(loaded(a, n, n).template cast<double>());
  if (!is_whole || (n > 0 && solver.info() != Eigen::Success)) {
    fill_with_nan(eigenvalues, n);
    return fill_with_nan(v, n * n);
  }
  if (n == 0) return;
  Matrix<double> vectors = solver.eigenvectors();
  for (std::int64_t i = 0; i < n; ++i) {
    if (is_flipped(vectors.col(i))) vectors.col(i) *= -1.0;
  }
  store(solver.eigenvalues().cast<T>(), eigenvalues);
  store(vectors.cast<T>(), v);
}

template <typename T>
void svd(MatrixSize size, const T* a, T* u, T* s, T* vt) {
  const std::int64_t k = size.least();
  if (k == 0) return;
  const bool is_whole = is_finite(a, size.rows * size.cols);
  Eigen::BDCSVD<Matrix<double>> solver;
  if (is_whole) {
    solver.compute(loaded(a, size.rows, size.cols).template cast<double>(),
                   Eigen::ComputeThinU | Eigen::ComputeThinV);
  }
  if (!is_whole || solver.info() != Eigen::Success) {
    fill_with_nan(u, size.rows * k);
    fill_with_nan(s, k);
    return fill_with_nan(vt, k * size.cols);
  }
  Matrix<double> left = solver.matrixU();
  Matrix<double> right = solver.matrixV().transpose();
  for (std::int64_t i = 0; i < k; ++i) {
    if (!is_flipped(left.col(i))) continue;
    left.col(i) *= -1.0;
    right.row(i) *= -1.0;
  }
  store(left.cast<T>(), u);
  store(solver.singularValues().cast<T>(), s);
  store(right.cast<T>(), vt);
}

template void eigh(std::int64_t, const float*, float*, float*);
template void eigh(std::int64_t, const double*, double*, double*);
template void svd(MatrixSize, const float*, float*, float*, float*);
template void svd(MatrixSize, const double*, double*, double*, double*);

}  // namespace tessera::kernels
