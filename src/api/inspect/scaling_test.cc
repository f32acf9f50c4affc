// Plans of steps: their numbers equal those that the compiler reports about the same program.
#include <gtest/gtest.h>

#include <tessera/tessera.h>

#include "tests/programs/pipeline_support.h"

namespace tessera {
namespace {

constexpr double kEndless = 1e300;
using testing::kWidth;

/// A cluster whose links take no time.
Cluster fast_links(std::int64_t nodes, std::int64_t devices_per_node) {
  return {.nodes = nodes,
          .devices_per_node = devices_per_node,
          .flops = 1e9,
          .memory_bandwidth = 1e9,
          .bandwidth = kEndless,
          .latency = 0,
          .node_bandwidth = kEndless,
          .node_latency = 0};
}

Cluster slow_links(std::int64_t nodes, std::int64_t devices_per_node) {
  Cluster cluster = fast_links(nodes, devices_per_node);
  cluster.bandwidth = 1e6;
  cluster.node_bandwidth = 1e7;
  cluster.latency = cluster.node_latency = 1e-5;
  return cluster;
}

/// Two layers with a loss; `weights` is the spec of their weights.
auto step_on(const Mesh& mesh, PartitionSpec weights) {
  return jit(
             [](Array w1, Array w2, Array x) {
               auto [loss, grads] = value_and_grad([&](std::tuple<Array, Array> w) {
                 return mean(square(dot(tanh(dot(x, std::get<0>(w))), std::get<1>(w))));
               })(std::tuple(w1, w2));
               return std::tuple(w1 - std::get<0>(grads), w2 - std::get<1>(grads), loss);
             },
             {.in_shardings = {NamedSharding(mesh, weights), NamedSharding(mesh, weights),
                               NamedSharding(mesh, P{"data"})},
              .donate_argnums = {0, 1}})
      .lower(ones({64, 96}), ones({96, 48}), ones({128, 64}));
}

double planned_wire_bytes(const LoweredProgram& step) {
  double sum = 0;
  for (const CollectiveUse& use : step.collectives()) sum += static_cast<double>(use.wire_bytes);
  return sum;
}

TEST(PlanStep, MovesTheBytesThatAreExplained) {
  const Mesh flat = make_mesh({{"data", 8}});
  const Mesh square = make_mesh({{"data", 4}, {"model", 2}});
  const std::vector<std::pair<Mesh, PartitionSpec>> cases = {
      {flat, P{}}, {flat, P{"data"}}, {square, P{none, "model"}}, {square, P{"data", "model"}}};
  for (const auto& [mesh, spec] : cases) {
    SCOPED_TRACE(to_string(mesh) + to_string(spec));
    const auto step = step_on(mesh, spec);
    for (const std::int64_t per_node : {1, 2, 8}) {
      const StepPlan plan = plan_step(step, slow_links(8 / per_node, per_node));
      EXPECT_NEAR(plan.bytes_within() + plan.bytes_between(), planned_wire_bytes(step), 1e-6);
      EXPECT_EQ(plan.bytes_within() == 0, per_node == 1);
      EXPECT_EQ(plan.bytes_between() == 0, per_node == 8);
    }
  }
}

TEST(PlanStep, HoldsWhatTheCompilerPlans) {
  const Mesh mesh = make_mesh({{"data", 8}});
  for (const PartitionSpec& spec : {P{}, P{"data"}}) {
    const auto step = step_on(mesh, spec);
    const StepPlan plan = plan_step(step, slow_links(1, 8));
    ASSERT_EQ(plan.groups.size(), 1U);
    EXPECT_EQ(plan.groups[0].memory, step.compile().memory().peak);
  }
}

TEST(PlanStep, EndlessLinksLeaveTheComputing) {
  const auto step = step_on(make_mesh({{"data", 8}}), P{});
  const StepPlan fast = plan_step(step, fast_links(4, 2));
  EXPECT_NEAR(fast.seconds, fast.groups[0].computing, 1e-12);
  EXPECT_NEAR(fast.groups[0].exposed, 0, 1e-12);
  const StepPlan slow = plan_step(step, slow_links(4, 2));
  EXPECT_NEAR(slow.groups[0].computing, fast.groups[0].computing, 1e-12);
  EXPECT_GT(slow.seconds, fast.seconds);
  Cluster blocking = slow_links(4, 2);
  blocking.overlaps = false;
  EXPECT_NEAR(plan_step(step, blocking).seconds,
              slow.groups[0].computing + slow.groups[0].communicating, 1e-12);
}

TEST(PlanStep, OneDeviceComputesAtItsSpeeds) {
  const auto product =
      jit([](Array a, Array b) { return dot(a, b); }).lower(ones({256, 128}), ones({128, 64}));
  Cluster cluster = fast_links(1, 1);
  cluster.memory_bandwidth = kEndless;
  const StepPlan plan = plan_step(product, cluster);
  EXPECT_DOUBLE_EQ(plan.seconds, 2.0 * 256 * 128 * 64 / 1e9);
  ASSERT_EQ(plan.computing.size(), 1U);
  EXPECT_EQ(plan.computing[0].name, "dot_general");
  EXPECT_DOUBLE_EQ(plan.computing[0].flops, 2.0 * 256 * 128 * 64);
  const auto sum = jit([](Array a, Array b) { return a + b; }).lower(ones({1000}), ones({1000}));
  EXPECT_DOUBLE_EQ(plan_step(sum, fast_links(1, 1)).seconds, 3 * 4000 / 1e9);
}

TEST(PlanStep, WaitsForSumsAlsoBehindViews) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const auto chain = jit(
                         [](Array x) {
                           return tanh(transpose(reshape(sum(x, {0}), {8, 16}))) + 1.0F;
                         },
                         {.in_shardings = {NamedSharding(mesh, P{"data"})},
                          .out_shardings = NamedSharding(mesh, P{})})
                         .lower(ones({32, 128}));
  const StepPlan plan = plan_step(chain, slow_links(1, 4));
  EXPECT_GT(plan.groups[0].communicating, 0);
  EXPECT_NEAR(plan.seconds, plan.groups[0].computing + plan.groups[0].communicating, 1e-12);
}

TEST(PlanStep, LoopsRunAsOftenAsTheirLength) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const auto step = [&](std::int64_t length) {
    return jit(
               [length](Array w, Array x) {
                 return scan([&](Array carry,
                                 Array) { return std::tuple(carry + sum(dot(x, carry)), carry); },
                             w, zeros({length}));
               },
               {.in_shardings = {NamedSharding(mesh, P{}), NamedSharding(mesh, P{"data"})}})
        .lower(ones({16, 16}), ones({64, 16}));
  };
  const auto three = step(3);
  const StepPlan plan = plan_step(three, slow_links(1, 4));
  EXPECT_NEAR(plan.bytes_within(), planned_wire_bytes(three), 1e-6);
  const StepPlan six = plan_step(step(6), slow_links(1, 4));
  EXPECT_NEAR(six.bytes_within(), 2 * plan.bytes_within(), 1e-6);
  EXPECT_GT(six.seconds, 1.9 * plan.seconds);
}

TEST(PlanStep, PipelinesHaveAPlanForEachGroup) {
  const MpmdMesh mesh = testing::groups(2);
  const Schedule schedule = Interleaved1F1B{.num_stages = 2, .mpmd_dim = 2};
  const use_mesh scope(mesh.group_mesh());
  const auto step = mpmd_jit_with_loop(
      [&](testing::PipelineNet net, testing::PipelineBatch batch) {
        return testing::step_of(net, batch, schedule);
      },
      mesh, {.donate_argnums = {0}});
  const auto lowered = step.lower(device_put(testing::make_net(), P{}),
                                  device_put(testing::make_batch(4), P{none, "data"}));
  const std::int64_t devices = mesh.mesh().num_devices();
  const StepPlan plan = plan_step(lowered, slow_links(2, devices / 2));
  ASSERT_EQ(plan.groups.size(), 2U);
  double transferred = 0;
  for (const CollectiveTime& one : plan.collectives) {
    if (one.kind == "transfer") transferred += one.bytes_between;
  }
  EXPECT_GT(transferred, 0);
  for (const DeviceTimes& group : plan.groups) {
    EXPECT_NEAR(group.computing + group.exposed + group.idle, plan.seconds, 1e-9);
    EXPECT_GT(group.memory, 0);
  }
  // Separate processes also send the new values of weights that several groups hold.
  const double bytes = 2 * (plan.bytes_within() + plan.bytes_between());
  EXPECT_GE(bytes, planned_wire_bytes(lowered));
  EXPECT_LE(bytes, planned_wire_bytes(lowered) + 4 * (kWidth * kWidth + kWidth));
}

}  // namespace
}  // namespace tessera
