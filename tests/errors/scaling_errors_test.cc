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
  EXPECT_EQ(error.text,
            "plan_step: the mesh and the cluster have different numbers of devices\n"
            "  where:  <this line>\n"
            "  found:  8 devices in the mesh data=8\n"
            "  wanted: 512 devices: 64 nodes with 8 each\n"
            "  cure:   change the mesh, or nodes and devices_per_node of the cluster");
}

TEST(ScalingErrors, NoNodes) {
  const auto step = lowered_step();
  const Caught error = caught([&] { plan_step(step, {.nodes = 0, .devices_per_node = 8}); });
  EXPECT_EQ(error.text,
            "plan_step: Cluster::nodes is not valid\n"
            "  where:  <this line>\n"
            "  found:  0\n"
            "  wanted: at least 1\n"
            "  cure:   give the numbers of the cluster; see <tessera/profile.h>");
}

TEST(ScalingErrors, LinksWithoutSpeed) {
  const auto step = lowered_step();
  const Caught error = caught([&] { plan_step(step, {.devices_per_node = 8, .bandwidth = 0}); });
  EXPECT_EQ(error.text,
            "plan_step: Cluster::bandwidth is not valid\n"
            "  where:  <this line>\n"
            "  found:  0\n"
            "  wanted: a number above 0\n"
            "  cure:   give the numbers of the cluster; see <tessera/profile.h>");
}

TEST(ScalingErrors, NegativeLatency) {
  const auto step = lowered_step();
  const Caught error = caught([&] { plan_step(step, {.devices_per_node = 8, .latency = -1}); });
  EXPECT_EQ(error.text,
            "plan_step: Cluster::latency is not valid\n"
            "  where:  <this line>\n"
            "  found:  -1\n"
            "  wanted: a time of at least 0, in seconds\n"
            "  cure:   give the numbers of the cluster; see <tessera/profile.h>");
}

}  // namespace
}  // namespace tessera
