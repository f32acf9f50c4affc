#include "stablehlo/complex/matrices.h"

#include <algorithm>
#include <numeric>

namespace tessera::stablehlo {

Pair ComplexMatrices::transpose(Pair x) {
  std::vector<std::int64_t> order(last(x.re) + 1);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 2], order.back());
  return PairMaker::both(x, [&](Value part) { return make_.transpose(part, order); });
}

PairMaker::Value ComplexMatrices::in_turn(Value x, Value y, std::size_t dim) {
  std::vector<std::int64_t> shape = make_.type(x).shape;
  std::vector<std::int64_t> column = shape;
  column.insert(column.begin() + static_cast<std::ptrdiff_t>(dim) + 1, 1);
  shape[dim] *= 2;
  const Value joined =
      make_.concatenate(make_.reshape(x, column), make_.reshape(y, column), dim + 1);
  return make_.reshape(joined, shape);
}

PairMaker::Value ComplexMatrices::every_second(Value x, std::size_t dim, std::int64_t first) {
  std::vector<std::int64_t> shape = make_.type(x).shape;
  shape[dim] /= 2;
  std::vector<std::int64_t> turns = shape;
  turns.insert(turns.begin() + static_cast<std::ptrdiff_t>(dim) + 1, 2);
  const Value one = make_.slice(make_.reshape(x, turns), dim + 1, first, first + 1);
  return make_.reshape(one, shape);
}

PairMaker::Value ComplexMatrices::blocks(Pair x) {
  const std::size_t column = last(x.re);
  const Value upper = in_turn(x.re, make_.neg(x.im), column);
  return in_turn(upper, in_turn(x.im, x.re, column), column - 1);
}

/// As a column.
PairMaker::Value ComplexMatrices::diagonal(Value x) {
  std::vector<std::int64_t> shape = make_.type(x).shape;
  const std::size_t dim = shape.size() - 2;
  const std::int64_t size = shape.back();
  shape.pop_back();
  shape.back() = size * size;
  const Value row = make_.reshape(x, shape);
  shape.back() = 1;
  shape.push_back(1);
  const Value end = make_.reshape(make_.slice(row, dim, size * size - 1, size * size), shape);
  if (size == 1) return end;
  // Rows that are one element longer have the diagonal in front.
  shape[dim] = size - 1;
  shape.back() = size + 1;
  const Value rest = make_.reshape(make_.slice(row, dim, 0, size * size - 1), shape);
  return make_.concatenate(make_.slice(rest, dim + 1, 0, 1), end, dim);
}

PairMaker::Value ComplexMatrices::without_diagonal(Value x) {
  const bytecode::Type& type = make_.type(x);
  const Value is_diagonal =
      make_.compare("EQ", make_.iota(last(x) - 1, type), make_.iota(last(x), type));
  return make_.select(is_diagonal, make_.constant_like(0, x), x);
}

Pair ComplexMatrices::cholesky(Pair x, bool lower) {
  const auto adjoint = [&](Pair matrix) {
    matrix = transpose(matrix);
    return Pair{matrix.re, make_.neg(matrix.im)};
  };
  if (std::ranges::find(make_.type(x.re).shape, 0) != make_.type(x.re).shape.end()) return x;
  if (!lower) x = adjoint(x);
  const Value factor = make_.cholesky(blocks({x.re, without_diagonal(x.im)}));
  const std::size_t column = last(factor);
  const Value first = every_second(factor, column, 0);
  const Pair result = {every_second(first, column - 1, 0), every_second(first, column - 1, 1)};
  return lower ? result : adjoint(result);
}

Pair ComplexMatrices::triangular_solve(const TriangularForm& form, Pair a, Pair b) {
  if (std::ranges::find(make_.type(b.re).shape, 0) != make_.type(b.re).shape.end()) return b;
  // x a = b is a^T x^T = b^T.
  const bool is_turned = form.left_side == form.transpose_a;
  if (is_turned) a = transpose(a);
  if (!form.left_side) b = transpose(b);
  if (!form.unit_diagonal) {
    const Pair diagonals = PairMaker::both(a, [&](Value part) { return diagonal(part); });
    const auto scaled = [&](Pair x) {
      return make_.div(x, PairMaker::both(diagonals, [&](Value part) {
                         return make_.broadcast_last(part, make_.type(x.re).shape);
                       }));
    };
    a = scaled(a);
    b = scaled(b);
  }
  a.im = without_diagonal(a.im);
  const std::size_t row = last(b.re) - 1;
  const Value x =
      make_.triangular_solve(blocks(a), in_turn(b.re, b.im, row), form.lower != is_turned);
  const Pair result = {every_second(x, row, 0), every_second(x, row, 1)};
  return form.left_side ? result : transpose(result);
}

}  // namespace tessera::stablehlo
