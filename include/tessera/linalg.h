// Matrices, linear algebra (factorisations, systems of equations, eigenvalues), and Fourier
// transforms.
//
// In linalg, arrays are matrices [.., rows, cols] of f32 or f64, one for each index of the leading
// dimensions. A matrix that is not finite gives NaN. On a mesh the leading dimensions may be split;
// matrices are whole on each device. Gradients are those of JAX: where eigenvalues or singular
// values are equal, the gradients of vectors are not finite.
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/ops.h>
#include <tessera/tree.h>

namespace TESSERA_EXPORT tessera {

// --- matrices

/// [rows, columns]: 1 on the diagonal, 0 elsewhere. `offset` in this section: of a diagonal, above
/// the main one if positive. `columns` of -1: as many as rows.
Array eye(std::int64_t rows, std::int64_t columns = -1, std::int64_t offset = 0,
          DType dtype = DType::f32, std::source_location where = std::source_location::current());
/// x [..., rows, columns] with zeros above the diagonal, or below it.
Array tril(Operand x, std::int64_t offset = 0);
Array triu(Operand x, std::int64_t offset = 0);
/// The square matrix with x [n] on its diagonal, or the diagonal of a matrix x.
Array diag(Operand x, std::int64_t offset = 0);
/// [n, m]: the product of each element of a with each of b, which are flattened.
Array outer(Operand a, Operand b);
/// The Kronecker product: each element of a times the whole b. The shorter shape gets leading ones.
Array kron(Operand a, Operand b);
/// The Euclidean norm, the square root of the sum of the squares. Where it is 0, so is its
/// gradient.
Array norm(Operand x, Axes axes = {}, KeepDims keep = KeepDims::no);

namespace linalg {

// --- factorisations

/// The lower triangular l with l * transpose(l) equal to (a + transpose(a)) / 2. NaN where a is not
/// positive definite.
Array cholesky(Operand a);

/// What elimination with partial pivoting gives, for matrices [.., rows, cols].
struct LuFactors {
  Array packed;       // below the diagonal l, without its diagonal of ones; the rest is u
  Array pivots;       // i32 [.., min(rows, cols)]: the row that was exchanged with row i
  Array permutation;  // i32 [.., rows]: row i of l * u is row permutation[i] of a
};
LuFactors lu_factor(Operand a);

enum class FullMatrices : std::uint8_t { no, yes };
/// q with orthonormal columns and the upper triangular r, q * r = a. q is [.., rows, k] and r is
/// [.., k, cols]; k is `rows` for full matrices, otherwise the lesser size. Full matrices with more
/// rows than columns have no gradient.
std::pair<Array, Array> qr(Operand a, FullMatrices full = FullMatrices::no);

/// Eigenvalues in ascending order [.., n] and eigenvectors as columns [.., n, n] of the symmetric
/// (a + transpose(a)) / 2. The first element of a vector that is larger than half of its largest
/// one is positive.
std::pair<Array, Array> eigh(Operand a);
Array eigvalsh(Operand a);

/// u [.., rows, k], singular values in descending order [.., k], and the transpose of v
/// [.., k, cols], u * diag(s) * vt = a; k is the lesser size. Signs as those of eigh, in u.
std::tuple<Array, Array, Array> svd(Operand a);
Array svdvals(Operand a);

// --- systems of equations; batch dimensions of a and b are broadcast

/// x with a * x = b, for square matrices a. b: a vector [n], or matrices [.., n, count]. Not
/// finite where a is singular.
Array solve(Operand a, Operand b);

struct TriangularOptions {
  bool lower = false;          // which triangle of `a` is read
  bool transpose = false;      // solves transpose(a) * x = b
  bool unit_diagonal = false;  // the diagonal is not read: it is 1
};
Array solve_triangular(Operand a, Operand b, const TriangularOptions& options = {});
/// a * x = b from cholesky(a).
Array cholesky_solve(Operand l, Operand b);
/// a * x = b from lu_factor(a).
Array lu_solve(const LuFactors& factors, Operand b);
/// The x of least norm that makes the norm of a * x - b least. Singular values of at most `rcond`
/// times the largest count as zero; -1: epsilon times the larger size.
Array lstsq(Operand a, Operand b, double rcond = -1.0);

// --- functions of matrices

Array inv(Operand a);
/// The Moore-Penrose inverse [.., cols, rows]. `rcond` as for lstsq.
Array pinv(Operand a, double rcond = -1.0);
/// [..]. Its gradient is not finite where a is singular.
Array det(Operand a);
/// The sign of the determinant, and the logarithm of its absolute value.
std::pair<Array, Array> slogdet(Operand a);
/// The product of n matrices a, or of inverses if n is negative.
Array matrix_power(Operand a, std::int64_t n);
/// The number of singular values above `rcond` times the largest: i32 [..].
Array matrix_rank(Operand a, double rcond = -1.0);

}  // namespace linalg

/// Discrete Fourier transforms: NumPy's functions, of f32 or f64. On a mesh the other dimensions
/// may be split; those that are transformed are whole on each device.
namespace fft {

/// Complex numbers: two arrays of one shape and dtype.
struct Complex {
  Array real;
  Array imag;
  TESSERA_TREE(real, imag)
};
Complex operator*(const Complex& x, const Complex& y);
Complex conj(const Complex& x);
/// The absolute values. Where one is 0, so is its gradient.
Array abs(const Complex& x);

/// What is divided by the number n of elements: the inverse transforms, the others, or all of them,
/// by the square root of n.
enum class Norm : std::uint8_t { backward, forward, ortho };

struct Options {
  std::int64_t length = -1;  // along the axis: cut, or padded with zeros; -1: as it is
  std::int64_t axis = -1;
  Norm norm = Norm::backward;
};
/// The sums over j of x[j] * exp(-2 pi i j k / n); of ifft, with the opposite sign.
Complex fft(const Complex& x, const Options& options = {},
            std::source_location where = std::source_location::current());
Complex ifft(const Complex& x, const Options& options = {},
             std::source_location where = std::source_location::current());
/// The first n / 2 + 1 elements of the transform of real numbers, and these numbers from such
/// elements. For irfft `length` is that of the result; -1: 2 * (size - 1).
Complex rfft(Operand x, const Options& options = {});
Array irfft(const Complex& x, const Options& options = {},
            std::source_location where = std::source_location::current());

struct OptionsN {
  std::vector<std::int64_t> axes = {};     // none: the last ones, as many as lengths, or all
  std::vector<std::int64_t> lengths = {};  // per axis; none: as they are
  Norm norm = Norm::backward;
};
/// Along several axes. The last of them is the one of rfft and irfft.
Complex fftn(const Complex& x, const OptionsN& options = {},
             std::source_location where = std::source_location::current());
Complex ifftn(const Complex& x, const OptionsN& options = {},
              std::source_location where = std::source_location::current());
Complex rfftn(Operand x, const OptionsN& options = {});
Array irfftn(const Complex& x, const OptionsN& options = {},
             std::source_location where = std::source_location::current());
/// Along the last two axes.
Complex fft2(const Complex& x, std::source_location where = std::source_location::current());
Complex ifft2(const Complex& x, std::source_location where = std::source_location::current());

/// [n]: the frequency of each element of fft, in cycles per unit of `spacing`, the distance of two
/// samples.
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
