// Plans that move few bytes, with the bits of one device.
#include <gtest/gtest.h>

#include <tessera/ops.h>
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

/// An operand without other users is gathered rather than that a larger result is added up.
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

/// A broadcast is repeated, so its size does not decide which of two arrays moves.
TEST(Product, ABroadcastClaimsNoMoreThanItsOperand) {
  const auto f = [](const Arrays& in) {
    const Array bias = broadcast_to(in[2], {8, 64});
    return sum(in[0] * bias, {0}) + sum(in[1] * bias, {0});
  };
  EXPECT_EQ(run_placed(four(), f, {numbers({8, 64}, 1), numbers({8, 64}, 2), numbers({64}, 3)},
                       {P{"a"}, P{none, "a"}, P{}}),
            Uses{"all_to_all x1: 384 bytes"});
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

}  // namespace
}  // namespace tessera::testing
