// QR factors.
#include <Eigen/QR>

#include "compile/host/kernels/linalg/eigen.h"

namespace tessera::kernels {

namespace {

/// The first `cols` columns of the product of the reflections.
template <typename T>
Matrix<T> product_of_reflections(const Matrix<T>& packed, const Vector<T>& taus,
                                 std::int64_t cols) {
  Matrix<T> q = Matrix<T>::Identity(packed.rows(), cols);
  q.applyOnTheLeft(Eigen::householderSequence(packed, taus));
  return q;
}

}  // namespace

template <typename T>
void geqrf(MatrixSize size, const T* a, T* packed, T* taus) {
  const std::int64_t count = size.rows * size.cols;
  if (!is_finite(a, count)) {
    fill_with_nan(packed, count);
    return fill_with_nan(taus, size.least());
  }
  if (count == 0) return;
  const Eigen::HouseholderQR<Matrix<T>> factors(loaded(a, size.rows, size.cols));
  store(factors.matrixQR(), packed);
  store(factors.hCoeffs(), taus);
}

template <typename T>
void householder_product(MatrixSize size, std::int64_t num_taus, const T* packed, const T* taus,
                         T* q) {
  const std::int64_t count = size.rows * size.cols;
  if (!is_finite(packed, count) || !is_finite(taus, num_taus)) return fill_with_nan(q, count);
  if (count == 0) return;
  const Matrix<T> vectors = loaded(packed, size.rows, size.cols).leftCols(num_taus);
  const Vector<T> factors = loaded(taus, num_taus, 1);
  store(product_of_reflections(vectors, factors, size.cols), q);
}

template <typename T>
void qr(MatrixSize size, bool is_full, const T* a, T* q, T* r) {
  const std::int64_t k = is_full ? size.rows : size.least();
  if (!is_finite(a, size.rows * size.cols)) {
    fill_with_nan(q, size.rows * k);
    return fill_with_nan(r, k * size.cols);
  }
  if (size.least() == 0) {
    return store(Matrix<T>(Matrix<T>::Identity(size.rows, k)), q);
  }
  const Eigen::HouseholderQR<Matrix<T>> factors(loaded(a, size.rows, size.cols));
  const Matrix<T> vectors = factors.matrixQR().leftCols(size.least());
  const Vector<T> taus = factors.hCoeffs();
  store(product_of_reflections(vectors, taus, k), q);
  Matrix<T> upper = Matrix<T>::Zero(k, size.cols);
  upper.topRows(size.least()) =
      factors.matrixQR().topRows(size.least()).template triangularView<Eigen::Upper>();
  store(upper, r);
}

template void geqrf(MatrixSize, const float*, float*, float*);
template void geqrf(MatrixSize, const double*, double*, double*);
template void householder_product(MatrixSize, std::int64_t, const float*, const float*, float*);
template void householder_product(MatrixSize, std::int64_t, const double*, const double*, double*);
template void qr(MatrixSize, bool, const float*, float*, float*);
template void qr(MatrixSize, bool, const double*, double*, double*);
}  // namespace tessera::kernels
