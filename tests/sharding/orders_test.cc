// Products whose result is read through a transpose give the bits of the transposed product, in
// whatever order the product is stored.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <numeric>
#include <string>

#include <tessera/jit.h>
#include <tessera/ops.h>
#include <tessera/shardings.h>

#include "api/test_support.h"

namespace tessera::testing {
namespace {

struct Product {
  std::string einsum;  // four dimensions
  Shape x, y;
  P x_spec, y_spec;
};

Shape flat_shape(const Array& array) {
  return {array.dim(0), array.dim(1), array.dim(2) * array.dim(3)};
}

/// Three readers of the transpose: an elementwise op, a reshape and a product.
std::vector<Array> readers(const Array& transposed) {
  const Array flat = reshape(transposed, flat_shape(transposed));
  return {transposed * 2.0F, flat + 1.0F, einsum("abc,adc->abd", flat, flat)};
}

void expect_bits_of_a_copy(const Product& product, const std::vector<std::int64_t>& permutation) {
  SCOPED_TRACE(fmt::format("{} as {}", product.einsum, fmt::join(permutation, ",")));
  const Array x = numbers(product.x, 1);
  const Array y = numbers(product.y, 2);
  // The ops run one after the other, each compiled by itself.
  const std::vector<Array> wanted = readers(transpose(einsum(product.einsum, x, y), permutation));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto f = jit([&](Array a, Array b) {
      return readers(transpose(einsum(product.einsum, a, b), permutation)).at(i);
    });
    expect_same_bits(f(x, y), wanted[i]);
    const use_mesh scope(make_mesh({{"a", 2}, {"b", 2}}));
    expect_same_bits(f(device_put(x, product.x_spec), device_put(y, product.y_spec)), wanted[i]);
  }
}

void expect_bits_in_any_order(const Product& product) {
  std::vector<std::int64_t> permutation(4);
  std::iota(permutation.begin(), permutation.end(), 0);
  do {
    expect_bits_of_a_copy(product, permutation);
  } while (std::next_permutation(permutation.begin(), permutation.end()));
}

TEST(Orders, OfBatchedProducts) {
  expect_bits_in_any_order(
      {"bhik,bhkj->bhij", {4, 2, 5, 7}, {4, 2, 7, 18}, P{"a", "b"}, P{"a", "b"}});
}

TEST(Orders, OfProductsOfSeveralRowsAndColumns) {
  expect_bits_in_any_order({"bik,kjh->bijh", {4, 33, 16}, {16, 6, 3}, P{"a"}, P{none, "b"}});
}

TEST(Orders, OfProductsWithAVector) {
  expect_bits_in_any_order({"bhijk,k->bhij", {2, 4, 3, 5, 16}, {16}, P{"a", "b"}, P{}});
}

TEST(Orders, OfTilesOfUnevenSizes) {
  expect_bits_in_any_order(
      {"bhki,bhkj->bhij", {5, 3, 9, 17}, {5, 3, 9, 4}, P{"a", "b"}, P{"a", "b"}});
}

}  // namespace
}  // namespace tessera::testing
