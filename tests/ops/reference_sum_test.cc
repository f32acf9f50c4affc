// The order of sums, written out by hand for small cases. Also compares random bits with JAX's.
#include <cmath>
#include <gtest/gtest.h>

#include "ops/emit.h"
#include "tests/ops/arrays.h"
#include "tests/ops/sample_inputs.h"
#include "tests/peers/golden.h"

namespace tessera {
namespace {

using ir::Builder;
using testing::array;
using testing::elements;
using testing::evaluate;

/// Values whose sums round, so that another order gives other bits.
std::vector<float> rough_values(std::size_t count) {
  std::mt19937_64 generator(7);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(std::exp(12.0 * testing::draw_unit(generator)) - 1000.0);
  }
  return values;
}

float tree_of_8(const std::vector<float>& leaf) {
  return ((leaf[0] + leaf[1]) + (leaf[2] + leaf[3])) + ((leaf[4] + leaf[5]) + (leaf[6] + leaf[7]));
}

float sum_of(ops::HostArray x, const ir::Ints& dims, std::int64_t grains = 8) {
  return elements<float>(evaluate(
      {std::move(x)}, [&](Builder& b, auto in) { return ops::reduce_sum(b, in[0], dims); },
      grains))[0];
}

TEST(SumOrder, LastDimensionHasLanes) {
  const std::vector<float> x = rough_values(40);
  std::vector<float> leaves;
  for (std::size_t i = 0; i < 40; i += 5) {
    leaves.push_back(((x[i] + x[i + 4]) + x[i + 2]) + (x[i + 1] + x[i + 3]));
  }
  EXPECT_EQ(sum_of(array(x), {0}), tree_of_8(leaves));
}

TEST(SumOrder, OtherDimensionsHaveOneAccumulator) {
  const std::vector<float> x = rough_values(40);
  std::vector<float> leaves;
  for (std::size_t i = 0; i < 40; i += 5) {
    leaves.push_back((((x[i] + x[i + 1]) + x[i + 2]) + x[i + 3]) + x[i + 4]);
  }
  EXPECT_EQ(sum_of(array(x, {40, 1}), {0}), tree_of_8(leaves));
}

TEST(SumOrder, UnevenLeaves) {
  // 10 terms in 8 grains: grain i is [floor(10 i / 8), floor(10 (i + 1) / 8)).
  const std::vector<float> x = rough_values(10);
  const std::vector<float> leaves = {x[0], x[1], x[2], x[3] + x[4], x[5], x[6], x[7], x[8] + x[9]};
  EXPECT_EQ(sum_of(array(x, {10, 1}), {0}), tree_of_8(leaves));
}

TEST(SumOrder, GrainsThatAreNoPowerOfTwo) {
  const std::vector<float> x = rough_values(6);
  // [0, 6) splits at 4, [4, 6) at 5.
  const float expected = ((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5]);
  EXPECT_EQ(sum_of(array(x, {6, 1}), {0}, 6), expected);
}

TEST(SumOrder, DimensionListGivesTheGrid) {
  // 8 grains along the first listed dimension, 1 along the other, which has too few terms.
  const std::vector<float> x = rough_values(24);
  auto at = [&](std::size_t row, std::size_t column) { return x[row * 3 + column]; };
  std::vector<float> leaves(8);
  for (std::size_t row = 0; row < 8; ++row) {
    leaves[row] = (at(row, 0) + at(row, 2)) + at(row, 1);  // vector lanes, then folded
  }
  EXPECT_EQ(sum_of(array(x, {8, 3}), {0, 1}), tree_of_8(leaves));
  // The other way round: 3 columns in 8 grains, some of which are empty. Within a grain, rows are
  // in index order.
  std::vector<float> columns(3, 0.0f);
  for (std::size_t column = 0; column < 3; ++column) {
    for (std::size_t row = 0; row < 8; ++row) columns[column] += at(row, column);
  }
  EXPECT_EQ(sum_of(array(x, {8, 3}), {1, 0}),
            tree_of_8({0, 0, columns[0], 0, 0, columns[1], 0, columns[2]}));
}

TEST(SumOrder, MinusZerosSumToPlusZero) {
  EXPECT_FALSE(std::signbit(sum_of(array<float>({-0.0f, -0.0f}), {0})));
  EXPECT_FALSE(std::signbit(sum_of(array<float>({-0.0f}), {0})));
}

TEST(SumOrder, ContractionsFuseInIndexOrder) {
  const std::vector<float> x = rough_values(24);
  std::vector<float> y = rough_values(48);
  y.erase(y.begin(), y.begin() + 24);
  std::vector<float> leaves;
  for (std::size_t i = 0; i < 24; i += 3) {
    float sum = 0.0f;
    for (std::size_t k = i; k < i + 3; ++k) sum = std::fma(x[k], y[k], sum);
    leaves.push_back(sum);
  }
  const auto dot = evaluate({array(x), array(y)}, [](Builder& b, auto in) {
    return ops::dot_general(b, in[0], in[1], {.lhs_contract = {0}, .rhs_contract = {0}});
  });
  EXPECT_EQ(elements<float>(dot)[0], tree_of_8(leaves));
}

TEST(SumOrder, ScatterFollowsTheLeavesOfTheIndices) {
  const std::vector<float> x = rough_values(16);
  const std::vector<std::int32_t> rows = {0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1};
  std::vector<float> leaves(8, 0.0f);
  for (std::size_t i = 0; i < 16; ++i) {
    if (rows[i] == 0) leaves[i / 2] += x[i];
  }
  const auto sums = evaluate({array(rows), array(x)}, [](Builder& b, auto in) {
    return ops::scatter_add(b, in[0], in[1], 0, 2);
  });
  EXPECT_EQ(elements<float>(sums)[0], tree_of_8(leaves));
}

/// The numbers that JAX gives for key 42, row-major.
std::vector<std::uint32_t> golden(const std::string& name) {
  const auto recorded = read_golden("prng.json").at("partitionable=True").at("key42").at(name);
  std::vector<std::uint32_t> values;
  for (const auto& value : recorded.at("values")) values.push_back(value);
  return values;
}

std::vector<std::uint32_t> with_key_42(const testing::EmitOne& emit) {
  return elements<std::uint32_t>(evaluate({array<std::uint32_t>({0, 42})}, emit));
}

TEST(RandomBits, AreThoseOfJax) {
  EXPECT_EQ(with_key_42([](Builder& b, auto in) {
              return b.emit("random_split", {{"num", 3}}, {in[0]});
            }),
            golden("split(key,3)"));
  EXPECT_EQ(with_key_42([](Builder& b, auto in) {
              return b.emit("random_fold_in", {}, {in[0], ops::scalar(b, 7.0, DType::u32)});
            }),
            golden("fold_in(key,7)"));
  EXPECT_EQ(
      with_key_42([](Builder& b, auto in) {
        return b.emit("random_fold_in", {}, {in[0], ops::scalar(b, 4294967295.0, DType::u32)});
      }),
      golden("fold_in(key,4294967295)"));
  EXPECT_EQ(with_key_42([](Builder& b, auto in) {
              return b.emit("random_bits", {{"shape", Shape{2, 3, 4}}}, {in[0]});
            }),
            golden("bits(u32,(2, 3, 4))"));
}

}  // namespace
}  // namespace tessera
