// What the records of linear algebra share.
#include "ops/linalg/matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/ops.h"
#include "ops/reference/loops.h"

namespace tessera::ops {

namespace {

std::int64_t rank_of(Builder& b, ValueId x) { return b.type(x).rank(); }

/// For each element [i, j] of `x`, whether it satisfies `j - i DIRECTION diagonal`.
ValueId on_side(Builder& b, ValueId x, std::string direction, std::int64_t diagonal) {
  const Type type = b.type(x);  // a copy: types move when equations are added
  const ValueId row = iota(b, DType::i32, type.shape, type.rank() - 2);
  const ValueId col = iota(b, DType::i32, type.shape, type.rank() - 1);
  const ValueId shifted = add(b, row, full_like(b, static_cast<double>(diagonal), row));
  return compare(b, std::move(direction), col, shifted);
}

ValueId kept_if(Builder& b, ValueId x, std::string direction, std::int64_t diagonal) {
  const ValueId is_kept = on_side(b, x, std::move(direction), diagonal);
  return select(b, is_kept, x, full_like(b, 0.0, x));
}

/// The vectors [batch.., n] along one of the last two dimensions of [batch.., n, n] or, as columns,
/// of [batch.., rows, n].
ValueId spread(Builder& b, ValueId vectors, const Shape& shape, std::int64_t without) {
  Ints dims;
  for (std::int64_t i = 0; i < std::ssize(shape); ++i) {
    if (i != without) dims.push_back(i);
  }
  return broadcast_in_dim(b, vectors, dims, shape);
}

Dense element_of(const HostArray& array, std::size_t batch_rank, std::int64_t i) {
  const Shape& shape = array.type().shape;
  Dense dense{.rows = shape[batch_rank],
              .cols = batch_rank + 1 < shape.size() ? shape[batch_rank + 1] : 1};
  dispatch(array.type().dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto data = array.data<T>().subspan(at(i) * dense.values.size(), dense.values.size());
    for (std::size_t n = 0; n < data.size(); ++n) {
      dense.values[n] = static_cast<double>(data[n]);
    }
  });
  return dense;
}

void store_element(const Dense& dense, HostArray& array, std::int64_t i) {
  dispatch(array.type().dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto data = array.data<T>().subspan(at(i) * dense.values.size(), dense.values.size());
    for (std::size_t n = 0; n < data.size(); ++n) {
      data[n] = static_cast<T>(dense.values[n]);
    }
  });
}

}  // namespace

void expect_matrices(const ShapeContext& c, std::size_t operand) {
  if (c.operands[operand].rank() >= 2) return;
  c.fail("the operand is not a matrix", "an array of at least two dimensions, [.., rows, cols]",
         "add dimensions with reshape or expand_dims");
}

void expect_square(const ShapeContext& c) {
  expect_matrices(c);
  const MatrixSizes size = sizes_of(c.operands[0]);
  if (size.rows == size.cols) return;
  c.fail("the matrix is not square", "[.., n, n]",
         "use qr, svd or lstsq, which take matrices of other shapes");
}

Type matrices_like(const Type& matrices, const Ints& sizes) {
  Type type = matrices;
  type.shape.resize(type.shape.size() - 2);
  type.shape.insert(type.shape.end(), sizes.begin(), sizes.end());
  return type;
}

MatrixSizes sizes_of(const Type& matrices) {
  const Shape& shape = matrices.shape;
  return {.rows = shape[shape.size() - 2], .cols = shape[shape.size() - 1]};
}

std::vector<ValueId> matrix_batch(BatchContext& c) {
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < c.operands.size(); ++i) operands.push_back(c.batched(i));
  return c.b.emit_all(*c.equation.op, c.equation.attributes, operands);
}

Factors matrix_factors(const Attributes& /*attributes*/, const std::vector<Type>& operands,
                       const std::vector<Type>& results) {
  Factors f;
  const std::size_t batch_rank = operands[0].shape.size() - 2;
  for (std::size_t i = 0; i < batch_rank; ++i) add_factor(f, operands[0].shape[i]);
  auto dims_of_array = [&](const Type& type) {
    Factors::Dims dims;
    for (std::size_t i = 0; i < type.shape.size(); ++i) {
      dims.push_back({i < batch_rank ? static_cast<int>(i)
                                     : add_factor(f, type.shape[i], FactorKind::replicate)});
    }
    return dims;
  };
  for (const Type& type : operands) f.operands.push_back(dims_of_array(type));
  for (const Type& type : results) f.results.push_back(dims_of_array(type));
  return f;
}

CostRule matrix_flops(double flops) {
  return [flops](const Attributes&, const std::vector<Type>& operands, const std::vector<Type>&) {
    const MatrixSizes size = sizes_of(operands.back());
    return flops * static_cast<double>(num_elements(operands.back().shape)) *
           static_cast<double>(size.least());
  };
}

ValueId matmul(Builder& b, ValueId x, ValueId y) {
  const std::int64_t rank = rank_of(b, x);
  const Ints batch = dims_from(0, at(rank - 2));
  return dot_general(b, x, y,
                     {.lhs_contract = {rank - 1},
                      .rhs_contract = {rank - 2},
                      .lhs_batch = batch,
                      .rhs_batch = batch});
}

ValueId matrix_transpose(Builder& b, ValueId x) {
  Ints permutation = dims_from(0, b.type(x).shape.size());
  std::swap(permutation.back(), permutation[permutation.size() - 2]);
  return transpose(b, x, permutation);
}

ValueId lower_part(Builder& b, ValueId x, std::int64_t diagonal) {
  return kept_if(b, x, "le", diagonal);
}

ValueId upper_part(Builder& b, ValueId x, std::int64_t diagonal) {
  return kept_if(b, x, "ge", diagonal);
}

ValueId half_lower_part(Builder& b, ValueId x) {
  const ValueId below = lower_part(b, x, -1);
  const ValueId diagonal = kept_if(b, x, "eq", 0);
  return add(b, below, mul(b, diagonal, full_like(b, 0.5, x)));
}

ValueId symmetric_cotangent(Builder& b, ValueId cotangent) {
  return half_lower_part(b, add(b, cotangent, matrix_transpose(b, cotangent)));
}

ValueId identity_like(Builder& b, ValueId like) {
  return convert(b, on_side(b, like, "eq", 0), b.type(like).dtype);
}

ValueId rows_of(Builder& b, ValueId x, std::int64_t first, std::int64_t last) {
  return slice_dim(b, x, rank_of(b, x) - 2, first, last);
}

ValueId cols_of(Builder& b, ValueId x, std::int64_t first, std::int64_t last) {
  return slice_dim(b, x, rank_of(b, x) - 1, first, last);
}

ValueId scale_cols(Builder& b, ValueId x, ValueId d) {
  const Shape shape = b.type(x).shape;
  return mul(b, x, spread(b, d, shape, std::ssize(shape) - 2));
}

ValueId differences(Builder& b, ValueId d) {
  Shape shape = b.type(d).shape;
  const std::int64_t rank = std::ssize(shape) + 1;
  shape.push_back(shape.back());
  const ValueId along_cols = spread(b, d, shape, rank - 2);
  const ValueId along_rows = spread(b, d, shape, rank - 1);
  const ValueId difference = sub(b, along_cols, along_rows);
  const ValueId is_diagonal = on_side(b, difference, "eq", 0);
  return select(b, is_diagonal, full_like(b, 1.0, difference), difference);
}

ValueId without_diagonal(Builder& b, ValueId x) { return kept_if(b, x, "ne", 0); }

ValueId cotangent_or_zero(VjpContext& c, std::size_t i) {
  if (c.cotangent(i) != ir::kNoValue) return c.cotangent(i);
  return full_like(c.b, 0.0, c.result(i));
}

ValueId triangular_solve(Builder& b, const TriangularAttributes& form, ValueId a, ValueId y) {
  return b.emit("triangular_solve",
                {{"left_side", form.left_side},
                 {"lower", form.lower},
                 {"transpose_a", form.transpose_a},
                 {"unit_diagonal", form.unit_diagonal}},
                {a, y});
}

hlo::Value kept_where(hlo::Writer& w, const hlo::Value& x, std::string_view direction) {
  const hlo::Value row = w.iota(x.type.rank() - 2, DType::i32, x.type.shape);
  const hlo::Value col = w.iota(x.type.rank() - 1, DType::i32, x.type.shape);
  const hlo::Value zeros = w.constant(0.0, x.type);
  return w.select(w.compare(direction, col, row), x, zeros);
}

bool Dense::is_finite() const {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

void Dense::fill_with_nan() { fill(std::numeric_limits<double>::quiet_NaN()); }

Reference per_matrix(std::function<void(const Attributes&, const DenseList&, DenseList&)> compute) {
  return [compute = std::move(compute)](const ReferenceContext& c) {
    std::vector<HostArray> results;
    for (const Type& type : c.results) results.emplace_back(type);
    const Shape& shape = c.operands[0]->type().shape;
    const std::size_t batch_rank = shape.size() - 2;
    const std::int64_t count = num_elements({shape.begin(), shape.end() - 2});
    for (std::int64_t i = 0; i < count; ++i) {
      DenseList in;
      for (const HostArray* operand : c.operands) in.push_back(element_of(*operand, batch_rank, i));
      DenseList out;
      for (const HostArray& result : results) out.push_back(element_of(result, batch_rank, i));
      compute(c.attributes, in, out);
      for (std::size_t n = 0; n < out.size(); ++n) store_element(out[n], results[n], i);
    }
    return results;
  };
}

Dense product(const Dense& x, const Dense& y) {
  Dense result{.rows = x.rows, .cols = y.cols};
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < y.cols; ++j) {
      for (std::int64_t k = 0; k < x.cols; ++k) result(i, j) += x(i, k) * y(k, j);
    }
  }
  return result;
}

Dense transposed(const Dense& x) {
  Dense result{.rows = x.cols, .cols = x.rows};
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.cols; ++j) result(j, i) = x(i, j);
  }
  return result;
}

SampleOperand dominant(Type type, double diagonal) {
  return {.type = std::move(type), .low = -1.0, .high = 1.0, .diagonal = diagonal};
}

}  // namespace tessera::ops
