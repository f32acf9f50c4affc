// Factorisations of one dense row-major matrix, for T = float and T = double.
//
// The bits of a result depend only on the matrix and its size: not on cache sizes, the number of
// threads or the instruction set. A matrix that is not finite gives NaN everywhere.
#pragma once

#include <cstdint>

namespace tessera::kernels {

struct MatrixSize {
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  std::int64_t least() const { return rows < cols ? rows : cols; }
};

/// Reads the lower triangle of a symmetric matrix `a` [n, n], which equals l * transpose(l). All of
/// `l` is NaN if the matrix is not positive definite.
template <typename T>
void cholesky(std::int64_t n, const T* a, T* l);

struct TriangularForm {
  bool left_side;      // op(a) * x = b, otherwise x * op(a) = b
  bool lower;          // which triangle of `a` is read
  bool transpose_a;    // op(a) is the transpose of `a`
  bool unit_diagonal;  // the diagonal is not read: it is 1
};

/// Solves for the right-hand sides [first_side, end_side): columns of b, or rows if x is on the
/// left of op(a). `size` is that of b and x. A zero on the diagonal divides like any number.
template <typename T>
void triangular_solve(const TriangularForm& form, MatrixSize size, const T* a, const T* b, T* x,
                      std::int64_t first_side, std::int64_t end_side);

/// Row i of l * u is row permutation[i] of `a`. `packed` holds both triangles, without the unit
/// diagonal of l. pivots[i] is the row that was exchanged with row i.
template <typename T>
void lu(MatrixSize size, const T* a, T* packed, std::int32_t* pivots, std::int32_t* permutation);

/// Householder reflections as LAPACK's geqrf returns them. `packed` has R and, below it, the
/// vectors without their leading 1; `taus` [least] has their factors.
template <typename T>
void geqrf(MatrixSize size, const T* a, T* packed, T* taus);

/// The first `size.cols` columns of the product of `num_taus` reflections, like LAPACK's orgqr.
/// `packed` and `q` have this size.
template <typename T>
void householder_product(MatrixSize size, std::int64_t num_taus, const T* packed, const T* taus,
                         T* q);

/// a = q * r. q: [rows, k], r: [k, cols], where k is `size.rows` if `is_full`, otherwise
/// `size.least()`.
template <typename T>
void qr(MatrixSize size, bool is_full, const T* a, T* q, T* r);

/// Eigenvalues in ascending order, and their vectors as columns of v; reads the lower triangle. In
/// each vector, the first element whose absolute value is more than half of the largest one is
/// positive.
template <typename T>
void eigh(std::int64_t n, const T* a, T* eigenvalues, T* v);

/// a = u * diag(s) * vt with s in descending order. u: [rows, k], vt: [k, cols], k = least. The
/// columns of u have the signs that eigh() gives.
template <typename T>
void svd(MatrixSize size, const T* a, T* u, T* s, T* vt);

}  // namespace tessera::kernels
