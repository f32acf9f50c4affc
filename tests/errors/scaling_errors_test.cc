// Mistakes in the clusters that steps are planned for.
#include <gtest/gtest.h>

#include <tessera/tessera.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

auto lowered_step() {
  const Mesh mesh = make_mesh({{"data", 8}});
  return jit([](Array x) { return sum(x); }, {.in_shardings = {NamedSharding(mesh, P{"data"})}})
      .lower(ones({64}));
}

TEST(ScalingErrors, AnotherNumberOfDevices) {
  const auto step = lowered_step();
  const Caught error = caught([&] { plan_step(step, {.nodes = 64, .devices_per_node = 8}); });
  EXPECT_EQ(error.text, "");
}

TEST(ScalingErrors, NoNodes) {
  const auto step = lowered_step();
  const Caught error = caught([&] { plan_step(step, {.nodes = 0, .devices_per_node = 8}); });
  EXPECT_EQ(error.text, "");
}

TEST(ScalingErrors, LinksWithoutSpeed) {
  const auto step = lowered_step();
  const Caught error = caught([&] { plan_step(step, {.devices_per_node = 8, .bandwidth = 0}); });
  EXPECT_EQ(error.text, "");
}

TEST(ScalingErrors, NegativeLatency) {
  const auto step = lowered_step();
  const Caught error = caught([&] { plan_step(step, {.devices_per_node = 8, .latency = -1}); });
  EXPECT_EQ(error.text, "");
}

}  // namespace
}  // namespace tessera
