// The suite can fail: programs and tiles that are made wrong on purpose are told from right ones.
#include <gtest/gtest.h>

#include <tessera/error.h>

#include "ir/text.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "partition/partition.h"
#include "tests/fuzz/check.h"
#include "tests/ops/sample_inputs.h"

namespace tessera {
namespace {

using testing::Arrays;
using testing::Placed;

/// x w, contracted over a dimension that four devices share.
struct Product {
  ir::Function function;
  Placed placed;
  Arrays inputs;
  Arrays wanted;

  Product() {
    function.mesh = make_mesh({{"x", 4}});
    ir::Builder b(function);
    const ir::ValueId x = b.add_input({DType::f32, {6, 64}});
    const ir::ValueId w = b.add_input({DType::f32, {64, 5}});
    b.set_outputs({ops::dot_general(b, x, w, {.lhs_contract = {1}, .rhs_contract = {0}})});
    placed.inputs = {sharding({none, "x"}, x), sharding({"x"}, w)};
    placed.outputs = {replicated_sharding(2)};
    std::mt19937_64 generator(testing::test_seed());
    for (ir::ValueId id : function.inputs) {
      inputs.push_back(testing::random_array(generator, {.type = b.type(id)}));
    }
    wanted = testing::run_whole(function, inputs);
  }

  Sharding sharding(const P& spec, ir::ValueId id) const {
    return to_sharding(function.mesh, spec, function.type(id), "test", {});
  }
  std::optional<std::string> difference(const ir::Function& partitioned,
                                        const testing::Fault& fault = {}) const {
    return testing::first_difference(testing::run_partitioned(partitioned, {}, inputs, fault),
                                     wanted);
  }
};

TEST(PlantedFault, NoneIsFoundWhereThereIsNone) {
  const Product product;
  const ir::Function split = testing::partition_verified(product.function, product.placed);
  EXPECT_EQ(product.difference(split), std::nullopt);
  EXPECT_NE(ir::print(split).find("all_reduce"), std::string::npos) << ir::print(split);
}

TEST(PlantedFault, WrongTile) {
  const Product product;
  const ir::Function split = testing::partition_verified(product.function, product.placed);
  const auto swap_two = [](std::vector<run::Tiles>& tiles) { std::swap(tiles[0][1], tiles[0][2]); };
  EXPECT_NE(product.difference(split, swap_two), std::nullopt);
}

// The same terms in the same sums, but the partial sums meet in another order.
TEST(PlantedFault, WrongOrderOfPartialSums) {
  const Product product;
  const ir::Function split = testing::partition_verified(product.function, product.placed);
  const auto swap_both = [](std::vector<run::Tiles>& tiles) {
    for (run::Tiles& input : tiles) std::swap(input[1], input[2]);
  };
  EXPECT_NE(product.difference(split, swap_both), std::nullopt);
}

// A device takes its own partial sum for the whole one.
TEST(PlantedFault, MissingReduction) {
  const Product product;
  ir::Function split = testing::partition_verified(product.function, product.placed);
  for (ir::Equation& equation : split.equations) {
    if (equation.op != &ops::all_reduce_op) continue;
    equation.op = &ops::all_slice_op;
    equation.attributes = {};
  }
  EXPECT_THROW(partition::verify_partitioned(split, "a planted fault"), InternalError);
  EXPECT_NE(product.difference(split), std::nullopt);
}

// One bit of one element of one tile.
TEST(PlantedFault, OneBit) {
  const Product product;
  const ir::Function split = testing::partition_verified(product.function, product.placed);
  const auto flip = [](std::vector<run::Tiles>& tiles) { tiles[1][3]->data()[0] ^= std::byte{1}; };
  EXPECT_NE(product.difference(split, flip), std::nullopt);
}

/// Swaps the first two tiles of each input that has two of one size.
void swap_tiles(std::vector<run::Tiles>& tiles) {
  for (run::Tiles& input : tiles) {
    if (input.size() > 1 && input[0]->size() == input[1]->size()) std::swap(input[0], input[1]);
  }
}

TEST(PlantedFault, FuzzFindsAndMinimises) {
  const fuzz::Check recheck = [](const fuzz::Case& c) {
    return fuzz::check(c, nullptr, swap_tiles);
  };
  int num_found = 0;
  constexpr int kCases = 20;
  std::optional<fuzz::Case> failing;
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    const fuzz::Case c = fuzz::make_case(seed);
    ASSERT_FALSE(fuzz::check(c)) << fuzz::to_string(c);
    const auto failure = recheck(c);
    if (!failure) continue;
    EXPECT_NE(failure->rule.find("the bits of one device"), std::string::npos) << failure->rule;
    ++num_found;
    if (!failing) failing = c;
  }
  // Some programs have no input of two tiles, or drop what is in them.
  EXPECT_GE(num_found, kCases / 2);
  ASSERT_TRUE(failing.has_value());
  const std::string rule = recheck(*failing)->rule;
  const fuzz::Case small = fuzz::minimised(*failing, rule, recheck, 20.0);
  EXPECT_LE(small.function.equations.size(), 3U) << fuzz::to_string(small);
  EXPECT_EQ(recheck(small)->rule, rule);
}

TEST(PlantedFault, SpecialValuesAreCompared) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  auto array = [](float value) {
    ops::HostArray result(Type{DType::f32, {}});
    result.data<float>()[0] = value;
    return result;
  };
  EXPECT_EQ(testing::first_difference(array(nan), array(-nan)), std::nullopt);
  EXPECT_NE(testing::first_difference(array(0.0f), array(-0.0f)), std::nullopt);
  EXPECT_NE(testing::first_difference(array(0.0f), array(nan)), std::nullopt);
  EXPECT_NE(testing::first_difference(array(1.0f), array(nan), 4.0), std::nullopt);
  EXPECT_NE(testing::first_difference(array(0.0f), array(1e-45f)), std::nullopt);
  EXPECT_EQ(testing::ulps_between(-0.0f, 1e-45f), 2.0);
  EXPECT_EQ(testing::ulps_between(1.0f, 1.0f + 0x1p-23f), 1.0);
}

}  // namespace
}  // namespace tessera
