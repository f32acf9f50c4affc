// Stages that the compiler cuts by cost give the same bits as marked stages and as one device.
#include <gtest/gtest.h>

#include <tessera/error.h>
#include <tessera/tessera.h>

#include "api/test_support.h"
#include "pipeline/schedules.h"

namespace tessera {
namespace {

using testing::expect_same_bits;
using testing::numbers;

constexpr std::int64_t kLayers = 6;
constexpr std::int64_t kWidth = 16;

/// Layers, a head and a skip connection. The first and the last layer share one matrix.
struct Net {
  std::vector<Array> layers;
  Array tied;
  Array head;
  TESSERA_TREE(layers, tied, head)
};

Net make_net() {
  Net net{.layers = {},
          .tied = numbers({kWidth, kWidth}, 100) * 0.2F,
          .head = numbers({kWidth, 4 * kWidth}, 101) * 0.2F};
  for (std::int64_t i = 0; i < kLayers; ++i) {
    net.layers.push_back(numbers({kWidth, kWidth}, i) * 0.2F);
  }
  return net;
}

struct Marks {
  std::vector<std::int64_t> behind;  // the layers that end a stage; empty: cut by cost
};

/// The targets of the head are computed first, although they are read last.
Array loss_of(const Net& net, Array x, const Array& y, const Marks& marks) {
  const Array targets = tanh(concatenate({y, y * 2.0F, y * 3.0F, y * 4.0F}, 1));
  x = with_sharding_constraint(x, P{"data"});
  Array skipped;
  for (std::int64_t i = 0; i < kLayers; ++i) {
    const auto layer = [](const Array& h, const Array& w) { return tanh(dot(h, w)); };
    const Array& w = net.layers[static_cast<std::size_t>(i)];
    x = i % 2 == 0 ? remat(layer)(x, w) : layer(x, w);
    if (i == 0 || i == kLayers - 1) x = dot(x, net.tied);
    if (i == 1) skipped = dot(x, net.tied);
    if (i == 4) x = x + skipped * x;
    for (const std::int64_t mark : marks.behind) {
      if (mark == i) x = mark_stage_end(x);
    }
  }
  Array loss = mean(square(dot(x, net.head) - targets));
  return marks.behind.empty() ? loss : mark_stage_end(loss);
}

using Batch = std::tuple<Array, Array>;

auto step_of(const Schedule& schedule, const MpmdMesh& mesh, const Marks& marks) {
  const auto step = [schedule, marks](const Net& net, const Batch& batch) {
    const auto one = [&](Array x, Array y) {
      return value_and_grad([&](const Net& params) { return loss_of(params, x, y, marks); })(net);
    };
    return treduce(one, batch, schedule);
  };
  JitOptions options;
  if (marks.behind.empty()) options.auto_stages = AutoStages{};
  return mpmd_jit_with_loop(step, mesh, options);
}

Batch make_batch() { return {numbers({4, 4, kWidth}, 7), numbers({4, 4, kWidth}, 8)}; }

MpmdMesh groups(std::int64_t count, std::int64_t data = 1) {
  return {make_mesh({{"stage", count}, {"data", data}}), "stage"};
}

std::vector<Array> run(const Schedule& schedule, const MpmdMesh& mesh, const Marks& marks = {}) {
  const use_mesh scope(mesh.group_mesh());
  return tree_leaves(step_of(schedule, mesh, marks)(make_net(), make_batch()));
}

void expect_same(const std::vector<Array>& found, const std::vector<Array>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) expect_same_bits(found[i], wanted[i]);
}

TEST(AutoStages, HaveTheBitsOfMarksAndOfOneDevice) {
  const std::vector<Array> wanted = run(Sequential{1}, groups(1));
  expect_same(run(Sequential{3, 1}, groups(1), {{1, 3}}), wanted);
  expect_same(run(Std1F1B{3}, groups(3), {{1, 3}}), wanted);
  for (const std::int64_t stages : {2, 3, 4, 6}) {
    SCOPED_TRACE(stages);
    expect_same(run(Std1F1B{stages}, groups(stages)), wanted);
    expect_same(run(ZeroBubble{stages}, groups(stages, 2)), wanted);
  }
}

TEST(AutoStages, GoWithEverySchedule) {
  const std::vector<Array> wanted = run(Sequential{1}, groups(1));
  for (const pipeline::ScheduleRecord& record : pipeline::schedule_records()) {
    const std::string name(record.name);
    SCOPED_TRACE(name);
    const std::int64_t ranks = name == "Sequential" ? 1 : 2;
    const std::int64_t stages = record.stages == pipeline::StagesPerRank::one ? 2 : 4;
    const ScheduleTasks tasks = schedule_tasks(name, {.num_stages = stages, .mpmd_dim = ranks}, 4);
    expect_same(run(FixedSchedule{stages, ranks, 4, tasks}, groups(ranks)), wanted);
  }
}

TEST(AutoStages, ComputeWhatNoGradientNeedsWhereItIsRead) {
  const MpmdMesh mesh = groups(2);
  const use_mesh scope(mesh.group_mesh());
  const std::string text = step_of(GPipe{2}, mesh, {}).lower(make_net(), make_batch()).task_ir();
  // Activations and the skip connection are transferred, but nothing as wide as the targets.
  EXPECT_NE(text.find("f32[4,16] = transfer[from=0, to=1]"), std::string::npos) << text;
  EXPECT_EQ(text.find("f32[4,64] = transfer"), std::string::npos) << text;
}

/// The stage costs of a sequence of layers with these widths.
ScheduleCosts costs_of_widths(const std::vector<std::int64_t>& widths, const Schedule& schedule) {
  const auto layer = [](const Array& h, const Array& w) {
    return tanh(dot(dot(h, w), transpose(w)));
  };
  const auto step = [&](const std::vector<Array>& net, const Array& xs) {
    return treduce(
        [&](const Array& x) {
          return value_and_grad([&](const std::vector<Array>& params) {
            Array h = x;
            for (const Array& w : params) h = remat(layer)(h, w);
            return mean(square(h));
          })(net);
        },
        xs, schedule);
  };
  std::vector<Array> net;
  for (const std::int64_t width : widths) net.push_back(ones({64, width}));
  return mpmd_jit_with_loop(step, groups(schedule.mpmd_dim()), {.auto_stages = AutoStages{}})
      .lower(net, ones({4, 128, 64}))
      .stage_costs();
}

TEST(AutoStages, AreAsLongAsEachOtherWhereLayersAreNot) {
  // Four layers of width 256 cost as much as one of width 1024.
  const ScheduleCosts costs = costs_of_widths({256, 256, 256, 256, 1024}, GPipe{2});
  EXPECT_LT(imbalance(costs), 1.1);
  EXPECT_GT(costs.stages[0].memory, costs.stages[1].memory * 0.2);
  EXPECT_GT(imbalance(costs_of_widths({256, 1024}, GPipe{2})), 1.5);
  EXPECT_LT(imbalance(costs_of_widths(std::vector<std::int64_t>(8, 256), ZBV{4, 2})), 1.1);
}

TEST(AutoStages, CutFunctionsWithoutDerivatives) {
  const std::vector<Array> net = make_net().layers;
  const auto step = [&](const Schedule& schedule, const MpmdMesh& mesh, JitOptions options) {
    return mpmd_jit_with_loop(
        [schedule](const std::vector<Array>& layers, const Array& xs) {
          return treduce(
              [&](Array x) {
                for (const Array& w : layers) x = tanh(dot(x, w));
                return x;
              },
              xs, schedule, Concat{});
        },
        mesh, std::move(options));
  };
  const Array xs = numbers({4, 4, kWidth}, 7);
  const auto piped = step(GPipe{3}, groups(3), {.auto_stages = AutoStages{}});
  const Array wanted = step(Sequential{1}, groups(1), {.auto_stages = AutoStages{}})(net, xs);
  expect_same_bits(piped(net, xs), wanted);
  const std::string text = piped.lower(net, xs).task_ir();
  EXPECT_NE(text.find("name=fwd_2, group=2"), std::string::npos) << text;
}

}  // namespace
}  // namespace tessera
