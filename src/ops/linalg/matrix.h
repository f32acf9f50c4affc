// What the records of linear algebra share. Their ops act on the matrices of the last two
// dimensions of arrays [batch.., rows, cols].
#pragma once

#include <functional>
#include <vector>

#include "ops/record.h"
#include "ops/rules.h"
#include "ops/stablehlo/writer.h"

namespace tessera::ops {

// --- rules

/// The operand must be an array of matrices.
void expect_matrices(const ShapeContext& c, std::size_t operand = 0);
void expect_square(const ShapeContext& c);
/// The dtype and batch dimensions of `matrices`, followed by these sizes.
Type matrices_like(const Type& matrices, const Ints& sizes);

struct MatrixSizes {
  std::int64_t rows;
  std::int64_t cols;

  std::int64_t least() const { return rows < cols ? rows : cols; }
};
MatrixSizes sizes_of(const Type& matrices);

/// The same op on one more batch dimension.
std::vector<ValueId> matrix_batch(BatchContext& c);
/// Batch dimensions may be split; matrices are whole.
Factors matrix_factors(const Attributes& attributes, const std::vector<Type>& operands,
                       const std::vector<Type>& results);
/// `flops` times rows * cols * least.
CostRule matrix_flops(double flops);

// --- equations, for derivatives

ValueId matmul(Builder& b, ValueId x, ValueId y);
ValueId matrix_transpose(Builder& b, ValueId x);
/// The elements [i, j] with j <= i + diagonal; the others are zero.
ValueId lower_part(Builder& b, ValueId x, std::int64_t diagonal = 0);
/// The elements [i, j] with j >= i + diagonal; the others are zero.
ValueId upper_part(Builder& b, ValueId x, std::int64_t diagonal = 0);
/// The lower triangle with half of the diagonal.
ValueId half_lower_part(Builder& b, ValueId x);
/// The cotangent of a matrix whose lower triangle an op reads as a symmetric matrix, from the
/// cotangent of the symmetric matrix.
ValueId symmetric_cotangent(Builder& b, ValueId cotangent);
/// Identity matrices of the type of `like`.
ValueId identity_like(Builder& b, ValueId like);
/// Rows [first, last), and likewise columns.
ValueId rows_of(Builder& b, ValueId x, std::int64_t first, std::int64_t last);
ValueId cols_of(Builder& b, ValueId x, std::int64_t first, std::int64_t last);
/// x * diag(d), d: [batch.., cols]
ValueId scale_cols(Builder& b, ValueId x, ValueId d);
/// The differences d[j] - d[i] outside of the diagonal, and 1 on it. d: [batch.., n]
ValueId differences(Builder& b, ValueId d);
/// `x` outside of the diagonal.
ValueId without_diagonal(Builder& b, ValueId x);
/// The cotangent of result i, or zeros.
ValueId cotangent_or_zero(VjpContext& c, std::size_t i);

struct TriangularAttributes {
  bool left_side = true;
  bool lower = true;
  bool transpose_a = false;
  bool unit_diagonal = false;
};
ValueId triangular_solve(Builder& b, const TriangularAttributes& form, ValueId a, ValueId y);

// --- StableHLO

/// The elements [i, j] with `j DIRECTION i`; the others are zero.
hlo::Value kept_where(hlo::Writer& w, const hlo::Value& x, std::string_view direction);

// --- references

/// A matrix, or a vector as one column, in f64.
struct Dense {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<double> values = std::vector<double>(at(rows * cols));

  double& operator()(std::int64_t i, std::int64_t j) { return values[at(i * cols + j)]; }
  double operator()(std::int64_t i, std::int64_t j) const { return values[at(i * cols + j)]; }
  bool is_finite() const;
  void fill(double value) { std::fill(values.begin(), values.end(), value); }
  void fill_with_nan();
};
using DenseList = std::vector<Dense>;
/// Calls `compute` for each element of the batch. Results are rounded to their dtypes.
Reference per_matrix(
    std::function<void(const Attributes&, const DenseList& operands, DenseList& results)> compute);
Dense product(const Dense& x, const Dense& y);
Dense transposed(const Dense& x);

// --- samples

/// Matrices that are well-conditioned and not symmetric.
SampleOperand dominant(Type type, double diagonal = 4.0);

}  // namespace tessera::ops
