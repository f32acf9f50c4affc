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

}  // namespace
}  // namespace tessera::testing
