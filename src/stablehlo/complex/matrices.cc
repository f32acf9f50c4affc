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

PairMaker::Value ComplexMatrices::blocks(Pair x) {
  const std::size_t column = last(x.re);
  const Value upper = make_.in_turn(x.re, make_.neg(x.im), column);
  return make_.in_turn(upper, make_.in_turn(x.im, x.re, column), column - 1);
}

/// The diagonal as a column.
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
  // With rows that are one element longer, the diagonal becomes the first column.
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
  const Pair result = make_.halves(make_.halves(factor, column).re, column - 1);
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
      make_.triangular_solve(blocks(a), make_.in_turn(b.re, b.im, row), form.lower != is_turned);
  const Pair result = make_.halves(x, row);
  return form.left_side ? result : transpose(result);
}

}  // namespace tessera::stablehlo
