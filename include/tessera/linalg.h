// Matrices, linear algebra (factorisations, systems of equations, eigenvalues), and Fourier
// transforms.
//
// In linalg, arrays hold f32 or f64 matrices [.., rows, cols], one for each index of the leading
// dimensions. A matrix that is not finite gives NaN. On a mesh, the leading dimensions may be
// split; each matrix is whole on a device. Gradients are those of JAX: where eigenvalues or
// singular values are equal, the gradients of the vectors are not finite.
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/ops.h>
#include <tessera/tree.h>

namespace TESSERA_EXPORT tessera {

// --- matrices

/// [rows, columns]: 1 on the diagonal, 0 elsewhere. `columns` = -1 means as many as rows. In this
/// section, `offset` selects a diagonal; positive offsets lie above the main diagonal.
Array eye(std::int64_t rows, std::int64_t columns = -1, std::int64_t offset = 0,
          DType dtype = DType::f32, std::source_location where = std::source_location::current());
/// x [..., rows, columns] with zeros above the diagonal (tril) or below it (triu).
Array tril(Operand x, std::int64_t offset = 0);
Array triu(Operand x, std::int64_t offset = 0);
/// For a vector x [n], the square matrix with x on its diagonal; for a matrix x, its diagonal.
Array diag(Operand x, std::int64_t offset = 0);
/// [n, m]: the product of each element of a with each element of b, both flattened.
Array outer(Operand a, Operand b);
/// The Kronecker product: each element of a times all of b. The shorter shape gets leading ones.
Array kron(Operand a, Operand b);
/// Sums over the last `count` dimensions of a and the first ones of b, or over these pairs of
/// dimensions: the result has the free dimensions of a, then those of b.
Array tensordot(Operand a, Operand b, std::int64_t count = 2);
Array tensordot(Operand a, Operand b, std::vector<std::int64_t> axes_a,
                std::vector<std::int64_t> axes_b);
/// The cross product of vectors of 3 numbers along `axis`; the other dimensions broadcast.
Array cross(Operand a, Operand b, std::int64_t axis = -1);
/// The Euclidean norm: the square root of the sum of squares. Where it is 0, its gradient is 0.
Array norm(Operand x, Axes axes = {}, KeepDims keep = KeepDims::no);

namespace linalg {

// --- factorisations

/// The lower triangular l for which l * transpose(l) is (a + transpose(a)) / 2. NaN where a is not
/// positive definite.
Array cholesky(Operand a);

/// The result of elimination with partial pivoting, for matrices [.., rows, cols].
struct LuFactors {
  Array packed;       // below the diagonal l, without its diagonal of ones; the rest is u
  Array pivots;       // i32 [.., min(rows, cols)]: at i, the row that was exchanged with row i
  Array permutation;  // i32 [.., rows]: row i of l * u is row permutation[i] of a
};
LuFactors lu_factor(Operand a);

enum class FullMatrices : std::uint8_t { no, yes };
/// q [.., rows, k] with orthonormal columns and the upper triangular r [.., k, cols], q * r = a.
/// k is `rows` for full matrices, otherwise min(rows, cols). Full matrices with more rows than
/// columns have no gradient.
std::pair<Array, Array> qr(Operand a, FullMatrices full = FullMatrices::no);

/// The eigenvalues [.., n], ascending, and the eigenvectors, the columns of [.., n, n], of the
/// symmetric matrix (a + transpose(a)) / 2. Signs: in each eigenvector, the first element with more
/// than half the largest absolute value is positive.
std::pair<Array, Array> eigh(Operand a);
Array eigvalsh(Operand a);

/// u [.., rows, k], the singular values s [.., k], descending, and vt [.., k, cols], the transpose
/// of v. u * diag(s) * vt = a and k = min(rows, cols). The columns of u have signs as in eigh.
std::tuple<Array, Array, Array> svd(Operand a);
Array svdvals(Operand a);

// --- systems of equations; batch dimensions of a and b are broadcast

/// The x with a * x = b, for square matrices a. b is a vector [n], or matrices [.., n, count]. The
/// result is not finite where a is singular.
Array solve(Operand a, Operand b);

struct TriangularOptions {
  bool lower = false;          // which triangle of `a` is read
  bool transpose = false;      // solves transpose(a) * x = b
  bool unit_diagonal = false;  // the diagonal is not read: it is 1
};
Array solve_triangular(Operand a, Operand b, const TriangularOptions& options = {});
/// Solves a * x = b, where l is cholesky(a).
Array cholesky_solve(Operand l, Operand b);
/// Solves a * x = b, where `factors` is lu_factor(a).
Array lu_solve(const LuFactors& factors, Operand b);
/// The least-squares solution: the x of least norm that minimises the norm of a * x - b. Singular
/// values of at most `rcond` times the largest count as zero. `rcond` = -1 means epsilon times the
/// larger size of a.
Array lstsq(Operand a, Operand b, double rcond = -1.0);

// --- functions of matrices

Array inv(Operand a);
/// The Moore-Penrose inverse [.., cols, rows]. `rcond` is as for lstsq.
Array pinv(Operand a, double rcond = -1.0);
/// The determinant [..]. Its gradient is not finite where a is singular.
Array det(Operand a);
/// The sign of the determinant, and the logarithm of its absolute value.
std::pair<Array, Array> slogdet(Operand a);
/// The product of n copies of a, or of -n copies of its inverse if n is negative.
Array matrix_power(Operand a, std::int64_t n);
/// The number of singular values above `rcond` times the largest: i32 [..].
Array matrix_rank(Operand a, double rcond = -1.0);

}  // namespace linalg

/// Discrete Fourier transforms: NumPy's functions, for f32 or f64. On a mesh, the dimensions that
/// are transformed are whole on each device; the other dimensions may be split.
namespace fft {

/// Complex numbers: two arrays of one shape and dtype.
struct Complex {
  Array real;
  Array imag;
  TESSERA_TREE(real, imag)
};
Complex operator*(const Complex& x, const Complex& y);
Complex conj(const Complex& x);
/// The absolute values. Where one is 0, its gradient is 0.
Array abs(const Complex& x);

/// Which transforms are scaled, for n elements: backward divides inverse transforms by n, forward
/// divides forward transforms by n, and ortho divides both by the square root of n.
enum class Norm : std::uint8_t { backward, forward, ortho };

struct Options {
  std::int64_t length = -1;  // cut or zero-pad the axis to this length; -1: leave it as it is
  std::int64_t axis = -1;
  Norm norm = Norm::backward;
};
/// The sums over j of x[j] * exp(-2 pi i j k / n). In ifft, the exponent has the opposite sign.
Complex fft(const Complex& x, const Options& options = {},
            std::source_location where = std::source_location::current());
Complex ifft(const Complex& x, const Options& options = {},
             std::source_location where = std::source_location::current());
/// rfft: the first n / 2 + 1 elements of the transform of real numbers. irfft: the real numbers
/// from such elements; its `length` is that of the result, and -1 means 2 * (size - 1).
Complex rfft(Operand x, const Options& options = {});
Array irfft(const Complex& x, const Options& options = {},
            std::source_location where = std::source_location::current());

struct OptionsN {
  std::vector<std::int64_t> axes = {};     // empty: the last ones, as many as lengths, or all
  std::vector<std::int64_t> lengths = {};  // per axis; empty: as they are
  Norm norm = Norm::backward;
};
/// Transforms along several axes. rfftn and irfftn apply rfft and irfft along the last of them.
Complex fftn(const Complex& x, const OptionsN& options = {},
             std::source_location where = std::source_location::current());
Complex ifftn(const Complex& x, const OptionsN& options = {},
              std::source_location where = std::source_location::current());
Complex rfftn(Operand x, const OptionsN& options = {});
Array irfftn(const Complex& x, const OptionsN& options = {},
             std::source_location where = std::source_location::current());
/// Transforms along the last two axes.
Complex fft2(const Complex& x, std::source_location where = std::source_location::current());
Complex ifft2(const Complex& x, std::source_location where = std::source_location::current());

/// [n]: the frequency of each element of fft, in cycles per unit of `spacing`. `spacing` is the
/// distance between two samples.
Array fftfreq(std::int64_t n, double spacing = 1.0, DType dtype = DType::f32,
              std::source_location where = std::source_location::current());
/// [n / 2 + 1]: the same for rfft.
Array rfftfreq(std::int64_t n, double spacing = 1.0, DType dtype = DType::f32,
               std::source_location where = std::source_location::current());
/// Moves frequency 0 to the middle of these axes; ifftshift moves it back.
Array fftshift(Operand x, Axes axes = {});
Array ifftshift(Operand x, Axes axes = {});

}  // namespace fft
}  // namespace tessera
