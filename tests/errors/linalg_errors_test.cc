// Mistakes in linear algebra.
#include <gtest/gtest.h>

#include <tessera/grad.h>
#include <tessera/linalg.h>

#include "tests/errors/caught.h"
#include "tests/errors/equations.h"

namespace tessera {
namespace {

TEST(LinalgErrors, AVectorIsNoMatrix) {
  const Caught error = caught([&] { linalg::svd(ones({4})); });
  EXPECT_EQ(error.text,
            "svd: the operand is not a matrix\n"
            "  where:  <this line>\n"
            "  found:  f32[4]\n"
            "  wanted: [.., rows, cols]\n"
            "  cure:   add dimensions with expand_dims or reshape");
}

TEST(LinalgErrors, MatricesOfIntegers) {
  const Caught error = caught([&] { linalg::qr(ones({4, 4}, DType::i32)); });
  EXPECT_EQ(error.text,
            "qr: matrices of this dtype are not supported\n"
            "  where:  <this line>\n"
            "  found:  i32[4,4]\n"
            "  wanted: f32 or f64\n"
            "  cure:   convert it first: astype(x, DType::f32)");
}

TEST(LinalgErrors, DeterminantOfARectangle) {
  const Caught error = caught([&] { linalg::det(ones({4, 3})); });
  EXPECT_EQ(error.text,
            "det: the matrix is not square\n"
            "  where:  <this line>\n"
            "  found:  f32[4,3]\n"
            "  wanted: [.., n, n]\n"
            "  cure:   use qr, svd, lstsq or pinv, which take matrices of other shapes");
}

TEST(LinalgErrors, RightHandSidesOfAnotherSize) {
  const Caught error = caught([&] { linalg::solve(ones({4, 4}), ones({3, 2})); });
  EXPECT_EQ(error.text,
            "solve: the right-hand sides do not fit the matrix\n"
            "  where:  <this line>\n"
            "  found:  f32[4,4] and f32[3,2]\n"
            "  wanted: a vector [4] or matrices [.., 4, count] of the dtype of the matrix\n"
            "  cure:   transpose or convert the right-hand sides");
}

TEST(LinalgErrors, GradientOfColumnsThatAreNotThere) {
  const Array a = ones({4, 3});
  std::string line;
  const auto loss = [&](const Array& x) {
    line = line_of(1);
    return sum(linalg::qr(x, linalg::FullMatrices::yes).first);
  };
  const Caught error = caught([&] { grad(loss)(a); });
  EXPECT_EQ(error.text,
            "qr: the columns of q beyond those of the operand have no derivative\n"
            "  where:  " +
                line +
                "\n"
                "  found:  f32[4,3]\n"
                "  wanted: full_matrices = false, or at least as many columns as rows\n"
                "  cure:   differentiate the reduced factors");
}

TEST(LinalgErrors, EquationOnAVector) {
  EXPECT_EQ(error_of_equation("%0: f32[4]", "%9: f32[4]", "cholesky %0"),
            "parse: line 2: cholesky: the operand is not a matrix\n"
            "  found:  f32[4] in '%9: f32[4] = cholesky %0'\n"
            "  wanted: an array of at least two dimensions, [.., rows, cols]\n"
            "  cure:   add dimensions with reshape or expand_dims");
}

TEST(LinalgErrors, EquationOnARectangle) {
  EXPECT_EQ(error_of_equation("%0: f32[4,3]", "%9: f32[4,3]", "cholesky %0"),
            "parse: line 2: cholesky: the matrix is not square\n"
            "  found:  f32[4,3] in '%9: f32[4,3] = cholesky %0'\n"
            "  wanted: [.., n, n]\n"
            "  cure:   use qr, svd or lstsq, which take matrices of other shapes");
}

TEST(LinalgErrors, EquationWithAVectorOnTheRight) {
  EXPECT_EQ(error_of_equation("%0: f32[4,4], %1: f32[4]", "%9: f32[4]",
                              "triangular_solve[left_side=true, lower=true, transpose_a=false, "
                              "unit_diagonal=false] %0, %1"),
            "parse: line 2: triangular_solve: the right-hand sides do not fit the matrix\n"
            "  found:  f32[4,4], f32[4] in '%9: f32[4] = triangular_solve[left_side=true, "
            "lower=true, transpose_a=false, unit_diagonal=false] %0, %1'\n"
            "  wanted: matrices [.., n, n] and right-hand sides [.., n, count] of one dtype\n"
            "  cure:   broadcast batch dimensions first, and reshape a vector to [n, 1]");
}

TEST(LinalgErrors, MoreReflectionsThanColumns) {
  EXPECT_EQ(
      error_of_equation("%0: f32[4,3], %1: f32[4]", "%9: f32[4,3]", "householder_product %0, %1"),
      "parse: line 2: householder_product: the reflections and factors do not match\n"
      "  found:  f32[4,3], f32[4] in '%9: f32[4,3] = householder_product %0, %1'\n"
      "  wanted: [.., rows, cols] and [.., count], where count <= cols <= rows\n"
      "  cure:   pass the results of geqrf, with columns added or removed if needed");
}

}  // namespace
}  // namespace tessera
