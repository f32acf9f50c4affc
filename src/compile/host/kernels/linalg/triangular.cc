// Cholesky factors, triangular systems and LU factors.
#include <Eigen/Cholesky>
#include <algorithm>
#include <numeric>

#include "compile/host/kernels/linalg/eigen.h"

namespace tessera::kernels {

namespace {

template <typename T>
bool is_triangle_finite(const TriangularForm& form, std::int64_t n, const T* a) {
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t first = form.lower ? 0 : i;
    std::int64_t end = form.lower ? i + 1 : n;
    if (form.unit_diagonal) form.lower ? --end : ++first;
    if (!is_finite(a + i * n + first, end - first)) return false;
  }
  return true;
}

template <typename T, unsigned kMode>
void solve_in_place(const TriangularForm& form, const Matrix<T>& a, Matrix<T>& x) {
  const auto triangle = a.template triangularView<kMode>();
  if (form.left_side) {
    triangle.template solveInPlace<Eigen::OnTheLeft>(x);
  } else {
    triangle.template solveInPlace<Eigen::OnTheRight>(x);
  }
}

template <typename Line>
void spoil_unless_finite(Line line) {
  if (!line.allFinite()) line.setConstant(std::numeric_limits<typename Line::Scalar>::quiet_NaN());
}

/// Rows that are factored before the rest of the matrix is updated, by one product.
constexpr std::int64_t kPanel = 32;

/// Factors the columns [first, end) below row `first`; exchanges whole rows.
template <typename T>
void factor_panel(Matrix<T>& a, std::int64_t first, std::int64_t end, std::int32_t* pivots) {
  for (std::int64_t k = first; k < end; ++k) {
    const std::int64_t below = a.rows() - k - 1;
    Eigen::Index largest = 0;
    a.col(k).tail(below + 1).cwiseAbs().maxCoeff(&largest);
    const std::int64_t pivot = k + largest;
    pivots[k] = static_cast<std::int32_t>(pivot);
    if (pivot != k) a.row(k).swap(a.row(pivot));
    if (a(k, k) == T{0}) continue;  // as is all below it
    a.col(k).tail(below) /= a(k, k);
    a.block(k + 1, k + 1, below, end - k - 1).noalias() -=
        a.col(k).tail(below) * a.row(k).segment(k + 1, end - k - 1);
  }
}

}  // namespace

template <typename T>
void cholesky(std::int64_t n, const T* a, T* l) {
  if (!is_lower_triangle_finite(n, a)) return fill_with_nan(l, n * n);
  const Eigen::LLT<Matrix<T>> factors(loaded(a, n, n));
  if (factors.info() != Eigen::Success) return fill_with_nan(l, n * n);
  store(Matrix<T>(factors.matrixL()), l);
}

template <typename T>
void triangular_solve(const TriangularForm& form, MatrixSize size, const T* a, const T* b, T* x) {
  const std::int64_t n = form.left_side ? size.rows : size.cols;
  const std::int64_t count = size.rows * size.cols;
  if (count == 0) return;
  if (!is_triangle_finite(form, n, a)) return fill_with_nan(x, count);
  Matrix<T> matrix = loaded(a, n, n);
  if (form.transpose_a) matrix.transposeInPlace();
  Matrix<T> solution = loaded(b, size.rows, size.cols);
  if (form.lower != form.transpose_a) {
    form.unit_diagonal ? solve_in_place<T, Eigen::UnitLower>(form, matrix, solution)
                       : solve_in_place<T, Eigen::Lower>(form, matrix, solution);
  } else {
    form.unit_diagonal ? solve_in_place<T, Eigen::UnitUpper>(form, matrix, solution)
                       : solve_in_place<T, Eigen::Upper>(form, matrix, solution);
  }
  if (form.left_side) {
    for (std::int64_t i = 0; i < size.cols; ++i) spoil_unless_finite(solution.col(i));
  } else {
    for (std::int64_t i = 0; i < size.rows; ++i) spoil_unless_finite(solution.row(i));
  }
  store(solution, x);
}

template <typename T>
void lu(MatrixSize size, const T* a, T* packed, std::int32_t* pivots, std::int32_t* permutation) {
  std::iota(permutation, permutation + size.rows, 0);
  std::iota(pivots, pivots + size.least(), 0);
  const std::int64_t count = size.rows * size.cols;
  if (!is_finite(a, count)) return fill_with_nan(packed, count);
  Matrix<T> m = loaded(a, size.rows, size.cols);
  for (std::int64_t first = 0; first < size.least(); first += kPanel) {
    const std::int64_t width = std::min(kPanel, size.least() - first);
    const std::int64_t end = first + width;
    factor_panel(m, first, end, pivots);
    const std::int64_t right = size.cols - end;
    const std::int64_t below = size.rows - end;
    auto upper = m.block(first, end, width, right);
    m.block(first, first, width, width)
        .template triangularView<Eigen::UnitLower>()
        .solveInPlace(upper);
    m.block(end, end, below, right).noalias() -= m.block(end, first, below, width) * upper;
  }
  for (std::int64_t i = 0; i < size.least(); ++i) {
    std::swap(permutation[i], permutation[pivots[i]]);
  }
  store(m, packed);
}

template void cholesky(std::int64_t, const float*, float*);
template void cholesky(std::int64_t, const double*, double*);
template void triangular_solve(const TriangularForm&, MatrixSize, const float*, const float*,
                               float*);
template void triangular_solve(const TriangularForm&, MatrixSize, const double*, const double*,
                               double*);
template void lu(MatrixSize, const float*, float*, std::int32_t*, std::int32_t*);
template void lu(MatrixSize, const double*, double*, std::int32_t*, std::int32_t*);

}  // namespace tessera::kernels
