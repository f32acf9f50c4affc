// Plans that move few bytes, with the bits of one device.
#include <gtest/gtest.h>
#include <limits>

#include <tessera/functions.h>
#include <tessera/random.h>

#include "api/test_support.h"
#include "tests/sharding/placed.h"

namespace tessera::testing {
namespace {

using Arrays = std::vector<Array>;

const Mesh& four() {
  static const Mesh mesh = make_mesh({{"a", 4}});
  return mesh;
}

/// Only what the product gathers is moved.
TEST(OpenConstraint, MovesNothing) {
  const auto f = [](const Arrays& in) {
    return with_sharding_constraint(dot(in[0], in[1]), P{unconstrained, unconstrained});
  };
  const Uses uses =
      run_placed(four(), f, {numbers({8, 64}, 1), numbers({64, 1024}, 2)}, {P{"a"}, P{none, "a"}});
  EXPECT_EQ(uses, Uses{"all_gather x1: 1536 bytes"});
  const auto keep = [](const Arrays& in) {
    return with_sharding_constraint(in[0], P{unconstrained, unconstrained}) * 2.0;
  };
  for (const P& spec : {P{"a"}, P{none, "a"}}) {
    EXPECT_EQ(run_placed(four(), keep, {numbers({8, 64})}, {spec}), Uses{});
  }
}

/// Both free dimensions of the product are split over one axis: the smaller operand moves.
TEST(Product, MovesTheSmallerOperand) {
  const auto f = [](const Arrays& in) { return dot(in[0], in[1]); };
  const Array small = numbers({64, 16}, 1);
  const Array large = numbers({16, 1024}, 2);
  EXPECT_EQ(run_placed(four(), f, {small, large}, {P{"a"}, P{none, "a"}}),
            Uses{"all_gather x1: 3072 bytes"});
  const auto swapped = [](const Arrays& in) { return dot(transpose(in[1]), transpose(in[0])); };
  EXPECT_EQ(run_placed(four(), swapped, {small, large}, {P{"a"}, P{none, "a"}}),
            Uses{"all_gather x1: 3072 bytes"});
}

/// An operand without other users is gathered, rather than reducing a larger result over devices.
TEST(Product, GathersAnOperandThatNobodyElseReads) {
  const auto f = [](const Arrays& in) {
    return with_sharding_constraint(dot(in[0], in[1]), P{none, "a"});
  };
  EXPECT_EQ(run_placed(four(), f, {numbers({256, 64}, 1), numbers({64, 256}, 2)}, {P{none, "a"}}),
            Uses{"all_gather x1: 49152 bytes"});
}

/// The same operand stays where a second user wants it.
TEST(Product, KeepsAnOperandThatOthersRead) {
  const auto f = [](const Arrays& in) {
    return dot(in[0], in[1]) + 0.0 * with_sharding_constraint(in[0], P{none, "a"});
  };
  EXPECT_EQ(run_placed(four(), f, {numbers({256, 256}, 1), numbers({256, 256}, 2)}, {P{none, "a"}}),
            Uses{"reduce_scatter x1: 196608 bytes"});
}

/// A broadcast is repeated where it is needed, so its size does not decide which of two arrays
/// moves.
TEST(Product, ABroadcastClaimsNoMoreThanItsOperand) {
  const auto f = [](const Arrays& in) {
    const Array bias = broadcast_to(in[2], {8, 64});
    return sum(in[0] * bias, {0}) + sum(in[1] * bias, {0});
  };
  EXPECT_EQ(run_placed(four(), f, {numbers({8, 64}, 1), numbers({8, 64}, 2), numbers({64}, 3)},
                       {P{"a"}, P{none, "a"}, P{}}),
            Uses{"reduce_scatter x1: 192 bytes"});
}

/// Attention over sequences that are split: queries stay, keys and values are gathered.
TEST(Product, KeepsTheQueriesSplit) {
  const auto attention = [](const Arrays& in) {
    const Array scores = softmax(einsum("bqhd,bkhd->bhqk", in[0], in[1]));
    return einsum("bhqk,bkhd->bqhd", scores, in[2]);
  };
  const Shape shape{2, 32, 4, 8};
  const P spec{none, "a"};
  const Uses uses =
      run_placed(four(), attention, {numbers(shape, 1), numbers(shape, 2), numbers(shape, 3)},
                 {spec, spec, spec});
  EXPECT_EQ(uses, Uses{"all_gather x2: 12288 bytes"});
}

/// Lines with ties, both zeros, infinities and NaNs. Among equal elements, the first counts.
Array lines_with_ties(const Shape& shape) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int32_t> drawn =
      random::randint(Key(5), {num_elements(shape)}, 0, 40).to_vector<std::int32_t>();
  std::vector<float> values;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    // The first lines have neither NaN nor infinity, and zeros are their extremes.
    const bool is_plain = i < drawn.size() / 2;
    const float plain = drawn[i] % 2 == 0 ? 0.0F : -0.0F;
    const float any = drawn[i] == 0   ? kNan
                      : drawn[i] == 1 ? kInfinity
                      : drawn[i] == 2 ? -kInfinity
                                      : static_cast<float>(drawn[i] / 8);
    values.push_back(is_plain ? plain : any);
  }
  return array(values, shape);
}

const std::vector<std::pair<Mesh, P>>& line_splits() {
  static const std::vector<std::pair<Mesh, P>> splits = {
      {make_mesh({{"a", 4}}), P{none, "a"}},
      {make_mesh({{"a", 2}, {"b", 4}}), P{"a", "b"}},
      {make_mesh({{"a", 2}, {"b", 4}}), P{none, {"b", "a"}}},
      {make_mesh({{"a", 3}}), P{none, "a"}}};
  return splits;
}

/// Each shard sends its best element with the element's position, or its k best elements.
TEST(Selection, IsMadeInShards) {
  const Array x = lines_with_ties({8, 768});
  const auto largest = [](const Arrays& in) { return argmax(in[0], 1); };
  const auto smallest = [](const Arrays& in) { return argmin(in[0], 1); };
  const auto values = [](const Arrays& in) { return top_k(in[0], 5, 1).first; };
  const auto positions = [](const Arrays& in) { return top_k(in[0], 5, 1).second; };
  for (const auto& [mesh, spec] : line_splits()) {
    run_placed(mesh, largest, {x}, {spec});
    run_placed(mesh, smallest, {x}, {spec});
    run_placed(mesh, values, {x}, {spec});
    run_placed(mesh, positions, {x}, {spec});
    run_placed(mesh, largest, {random::randint(Key(6), {8, 768}, -5, 5)}, {spec});
    run_placed(mesh, positions, {random::randint(Key(6), {8, 768}, -5, 5)}, {spec});
  }
  // Each device has one shard of each of the 8 lines, which have 4 shards.
  EXPECT_EQ(run_placed(four(), largest, {x}, {P{none, "a"}}), Uses{"all_gather x2: 192 bytes"});
  EXPECT_EQ(run_placed(four(), smallest, {x}, {P{none, "a"}}), Uses{"all_gather x2: 192 bytes"});
  EXPECT_EQ(run_placed(four(), positions, {x}, {P{none, "a"}}), Uses{"all_gather x2: 960 bytes"});
  // Lines run along the first dimension, too.
  const auto along_first = [](const Arrays& in) { return argmax(in[0], 0); };
  EXPECT_EQ(run_placed(four(), along_first, {transpose(x)}, {P{"a"}}),
            Uses{"all_gather x2: 192 bytes"});
}

/// Operands with shards of different sizes are moved, and so are those too small to be worth two
/// messages.
TEST(Selection, OfOthersMovesTheOperand) {
  const auto largest = [](const Arrays& in) { return argmax(in[0], 1); };
  const auto uses = [&](const Shape& shape) {
    return run_placed(four(), largest, {lines_with_ties(shape)}, {P{none, "a"}});
  };
  EXPECT_EQ(uses({1, 770}), Uses{"all_gather x1: 2310 bytes"});
  EXPECT_EQ(uses({8, 770}), Uses{"all_to_all x1: 4632 bytes"});
  EXPECT_EQ(uses({8, 4}), Uses{"all_gather x1: 96 bytes"});
}

/// The split moves to another dimension and back, so every line is whole where it is worked on.
TEST(WholeLines, MoveTheSplit) {
  const Array x = lines_with_ties({64, 96});
  const P spec{none, "a"};
  using Op = Array (*)(const Array&);
  const Op ops[] = {[](const Array& a) { return sort(a, 1); },
                    [](const Array& a) { return cumsum(a, 1); },
                    [](const Array& a) { return cumprod(a, 1, /*reverse=*/true); },
                    [](const Array& a) { return cummax(a, 1); }};
  for (Op op : ops) {
    const auto there = [op](const Arrays& in) { return op(in[0]); };
    const auto and_back = [&](const Arrays& in) {
      return with_sharding_constraint(op(in[0]), P{none, "a"});
    };
    for (const auto& [mesh, split] : line_splits()) run_placed(mesh, there, {x}, {split});
    // A device has 16 lines, and three quarters of each come from others.
    EXPECT_EQ(run_placed(four(), there, {x}, {spec}), Uses{"all_to_all x1: 4608 bytes"});
    EXPECT_EQ(run_placed(four(), and_back, {x}, {spec}), Uses{"all_to_all x2: 9216 bytes"});
  }
}

/// With no dimension to move the split to, lines are gathered.
TEST(WholeLines, GatherWithoutAnotherDimension) {
  const auto sorted = [](const Arrays& in) { return sort(in[0]); };
  EXPECT_EQ(run_placed(four(), sorted, {numbers({96})}, {P{"a"}}),
            Uses{"all_gather x1: 288 bytes"});
}

/// The last `count` elements of every line, then the others.
Array rolled(const Array& x, std::int64_t count) {
  const std::int64_t size = x.shape()[1];
  return concatenate({slice(x, 1, size - count, size), slice(x, 1, 0, size - count)}, 1);
}

/// Each shard sends the elements that leave it to its neighbour, in one collective.
TEST(Roll, MovesToNeighbours) {
  const Array x = lines_with_ties({8, 96});
  for (const std::int64_t count : {1, 7, 12, 24, 25, 48, 71, 72, 90, 95}) {
    const auto roll = [&](const Arrays& in) { return rolled(in[0], count); };
    for (const auto& [mesh, spec] : line_splits()) run_placed(mesh, roll, {x}, {spec});
    // On four devices, shards have 24 elements.
    const std::int64_t sent = std::min(count, 96 - count);
    if (sent > 24) continue;
    EXPECT_EQ(run_placed(four(), roll, {x}, {P{none, "a"}}),
              Uses{fmt::format("permute x1: {} bytes", 8 * sent * 4)});
  }
}

/// Some devices have no elements of their own.
TEST(Roll, OfEmptyTiles) {
  const Mesh mesh = make_mesh({{"a", 4}, {"b", 2}});
  const Array x = lines_with_ties({1, 96});
  const auto roll = [](const Arrays& in) { return rolled(in[0], 3); };
  const auto positions = [](const Arrays& in) { return top_k(in[0], 5, 1).second; };
  const auto largest = [](const Arrays& in) { return argmax(in[0], 1); };
  run_placed(mesh, roll, {x}, {P{"a", "b"}});
  run_placed(mesh, positions, {x}, {P{"a", "b"}});
  run_placed(mesh, largest, {x}, {P{"a", "b"}});
}

/// A part that others read is not rolled; nor are shards of different sizes.
TEST(Roll, OfOthersMovesRows) {
  const auto shared = [](const Arrays& in) {
    const Array end = slice(in[0], 1, 95, 96);
    return concatenate({end, slice(in[0], 1, 0, 95)}, 1) + end;
  };
  const Array x = numbers({8, 96});
  EXPECT_EQ(run_placed(four(), shared, {x}, {P{none, "a"}}), Uses{"halo_exchange x2: 64 bytes"});
  const auto uneven = [](const Arrays& in) { return rolled(in[0], 1); };
  for (const std::string& use : run_placed(four(), uneven, {numbers({8, 97})}, {P{none, "a"}})) {
    EXPECT_EQ(use.substr(0, 13), "halo_exchange");
  }
}

}  // namespace
}  // namespace tessera::testing
