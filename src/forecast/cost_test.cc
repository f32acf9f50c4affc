// Compares the times of collectives with closed forms and with message-by-message algorithms.
#include "forecast/cost.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "ops/ops.h"

namespace tessera::forecast {
namespace {

const Cluster kCluster{.nodes = 64,
                       .devices_per_node = 8,
                       .bandwidth = 2e9,
                       .latency = 5e-6,
                       .node_bandwidth = 3e10,
                       .node_latency = 1e-6};

/// The bytes on the wire for an array of `bytes` over n devices.
double wire_bytes(double bytes, double n) { return bytes * (n - 1) / n; }

TEST(ExchangeTime, IsThatOfARing) {
  for (const std::int64_t n : {3, 5, 6, 7, 12}) {
    const Reach reach{.size = n, .within = n, .sharers = n};
    const auto count = static_cast<double>(n);
    const double bytes = 1e6;
    const double around = (count - 1) * (1e-6 + bytes / count / 3e10);
    EXPECT_NEAR(exchange("all_gather", wire_bytes(bytes, count), reach, kCluster).seconds, around,
                1e-15);
    EXPECT_NEAR(exchange("all_reduce", 2 * wire_bytes(bytes, count), reach, kCluster).seconds,
                2 * around, 1e-15);
  }
}

/// Recursive halving of an array over nodes * per_node devices, message by message; the nearest
/// devices exchange first. All devices of a node send at the same time.
Exchange halving(double bytes, std::int64_t nodes, std::int64_t per_node) {
  Exchange sum;
  for (std::int64_t distance = 1; distance < nodes * per_node; distance *= 2) {
    bytes /= 2;
    const bool is_within = distance < per_node;
    (is_within ? sum.bytes_within : sum.bytes_between) += bytes;
    sum.seconds +=
        is_within ? kCluster.node_latency + bytes / kCluster.node_bandwidth
                  : kCluster.latency + bytes * static_cast<double>(per_node) / kCluster.bandwidth;
  }
  return sum;
}

TEST(ExchangeTime, IsThatOfRecursiveHalving) {
  for (const std::int64_t nodes : {1, 2, 4, 16}) {
    for (const std::int64_t per_node : {1, 2, 8}) {
      const std::int64_t n = nodes * per_node;
      if (n == 1) continue;
      const Reach reach{.size = n, .within = per_node, .sharers = per_node};
      const double bytes = 1 << 20;
      const Exchange wanted = halving(bytes, nodes, per_node);
      const Exchange found =
          exchange("reduce_scatter", wire_bytes(bytes, static_cast<double>(n)), reach, kCluster);
      EXPECT_NEAR(found.seconds, wanted.seconds, 1e-12);
      EXPECT_NEAR(found.bytes_within, wanted.bytes_within, 1e-6);
      EXPECT_NEAR(found.bytes_between, wanted.bytes_between, 1e-6);
    }
  }
}

TEST(ExchangeTime, SplitsTheBytesOfDirectMessages) {
  // Seven devices send to this one. Three of them are on its node.
  const Reach reach{.size = 8, .within = 4, .sharers = 4};
  const Exchange found = exchange("all_to_all", 7000, reach, kCluster);
  EXPECT_DOUBLE_EQ(found.bytes_within, 3000);
  EXPECT_DOUBLE_EQ(found.bytes_between, 4000);
  EXPECT_NEAR(found.seconds, 3 * 1e-6 + 3000 / 3e10 + 4 * 5e-6 + 4 * 4000 / 2e9, 1e-15);
}

TEST(ExchangeTime, OneDeviceExchangesNothing) {
  EXPECT_EQ(exchange("all_reduce", 0, {}, kCluster).seconds, 0);
}

/// The reach of an all_gather that removes `axes` from dimension 0.
Reach reach_along(const Mesh& mesh, const SpecEntry& axes, std::int64_t per_node) {
  ir::Function function;
  function.mesh = mesh;
  const Type type{DType::f32, {4096}};
  const ir::ValueId from =
      function.add_value({type, to_sharding(mesh, PartitionSpec({axes}), type, "test", Span())});
  const ir::ValueId to = function.add_value({type, replicated_sharding(1)});
  const ir::Equation gather{&ops::all_gather_op, {}, {from}, {to}, {}};
  return reach_of(function, gather, 0, {.nodes = 1, .devices_per_node = per_node});
}

TEST(Reach, FollowsTheOrderOfTheMesh) {
  const Mesh mesh = make_mesh({{"data", 16}, {"model", 8}});
  const auto expect = [&](const SpecEntry& axes, std::int64_t per_node, std::int64_t size,
                          std::int64_t within) {
    const Reach reach = reach_along(mesh, axes, per_node);
    EXPECT_EQ(reach.size, size);
    EXPECT_EQ(reach.within, within);
    EXPECT_EQ(reach.sharers, per_node);
  };
  expect("model", 8, 8, 8);
  expect("data", 8, 16, 1);
  expect("data", 16, 16, 2);
  expect("model", 4, 8, 4);
  expect({"data", "model"}, 8, 128, 8);
}

TEST(Reach, FollowsTheIdsOfDevices) {
  // Neighbours along the axis are on different nodes.
  const Mesh mesh = make_mesh({{"data", 4}}, {0, 2, 1, 3});
  EXPECT_EQ(reach_along(mesh, "data", 2).within, 2);
  const Mesh pairs = make_mesh({{"a", 2}, {"b", 2}}, {0, 2, 1, 3});
  EXPECT_EQ(reach_along(pairs, "b", 2).within, 1);
  EXPECT_EQ(reach_along(pairs, "a", 2).within, 2);
}

}  // namespace
}  // namespace tessera::forecast
