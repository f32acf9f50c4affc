// Products that are summed over devices, with results that are split in any way: the bits are those
// of one device.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>

#include <tessera/jit.h>
#include <tessera/ops.h>
#include <tessera/shardings.h>

#include "api/test_support.h"

namespace tessera::testing {
namespace {

struct Product {
  std::string einsum;
  Shape x, y;
  P x_spec, y_spec;
  P sum;  // spec of the result
};

bool has_reduce_scatter(const std::vector<CollectiveUse>& uses) {
  for (const CollectiveUse& use : uses) {
    if (use.kind == "reduce_scatter") return true;
  }
  return false;
}

void expect_bits_of_one_device(const Mesh& mesh, const Product& product) {
  SCOPED_TRACE(
      fmt::format("{} on {} as {}", product.einsum, to_string(mesh), to_string(product.sum)));
  const Array x = numbers(product.x, 1);
  const Array y = numbers(product.y, 2);
  const Array wanted = einsum(product.einsum, x, y);
  const use_mesh scope(mesh);
  const auto f = jit([&](Array a, Array b) {
    return with_sharding_constraint(einsum(product.einsum, a, b), product.sum);
  });
  const Array a = device_put(x, product.x_spec);
  const Array b = device_put(y, product.y_spec);
  EXPECT_TRUE(has_reduce_scatter(f.lower(a, b).collectives()));
  expect_same_bits(f(a, b), wanted);
}

TEST(SumsOfProducts, EndInTheTilesOfAnySplit) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  // The result is [4, 32, 32, 16]. Its dimensions [32, 16] are the columns of the matrix product.
  for (const P& sum : {P{"a"}, P{none, "a"}, P{none, none, "a"}, P{none, none, none, "a"},
                       P{"b", "a"}, P{"b", none, "a"}, P{none, none, "a", "b"}}) {
    expect_bits_of_one_device(
        mesh, {"ijk,klm->ijlm", {4, 32, 512}, {512, 32, 16}, P{none, none, "a"}, P{"a"}, sum});
  }
}

/// Shards of equal sizes may consist of grains of different sizes: 29 rows on 4 devices are 3 + 4,
/// 3 + 4, 4 + 3, and 4 + 4.
TEST(SumsOfColumns, OfUnevenGrains) {
  const use_mesh scope(make_mesh({{"a", 4}}));
  const auto f = jit([](Array a, Array b) { return sum(a * b, 0); });
  for (std::int64_t rows = 8; rows < 70; ++rows) {
    SCOPED_TRACE(rows);
    const Array x = numbers({rows, 5}, 1);
    const Array y = numbers({rows, 5}, 2);
    expect_same_bits(f(device_put(x, P{"a"}), device_put(y, P{"a"})), f(x, y));
  }
}

TEST(SumsOfProducts, OverSeveralAxes) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  for (const P& sum : {P{{"a", "b"}}, P{none, {"a", "b"}}, P{"a", "b"}, P{"b", "a"}}) {
    expect_bits_of_one_device(
        mesh, {"ki,kj->ij", {512, 96}, {512, 128}, P{{"a", "b"}}, P{{"a", "b"}}, sum});
  }
}

TEST(SumsOfProducts, OfUnevenSizes) {
  const Mesh mesh = make_mesh({{"a", 4}});
  for (const std::int64_t size : {33, 65, 130}) {
    for (const P& sum : {P{"a"}, P{none, "a"}}) {
      expect_bits_of_one_device(mesh, {"ki,kj->ij", {512, size}, {512, size}, P{"a"}, P{"a"}, sum});
    }
  }
}

TEST(SumsOfProducts, InBatches) {
  const Mesh mesh = make_mesh({{"a", 2}});
  for (const P& sum : {P{"a"}, P{none, "a"}, P{none, none, "a"}}) {
    expect_bits_of_one_device(
        mesh, {"bik,bkj->bij", {4, 32, 48}, {4, 48, 64}, P{none, none, "a"}, P{none, "a"}, sum});
  }
}

}  // namespace
}  // namespace tessera::testing
