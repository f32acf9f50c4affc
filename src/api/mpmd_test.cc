// The public interface of pipelines. For every schedule, number of stages and mesh, the bits equal
// those of a plain loop.
#include <gtest/gtest.h>

#include "api/test_support.h"
#include "pipeline/schedules.h"
#include "tests/programs/pipeline_support.h"

namespace tessera {
namespace {

using testing::expect_same_bits;
using testing::groups;
using testing::kWidth;
using testing::make_batch;
using testing::make_net;
using testing::mistake_of;
using testing::numbers;
using testing::step_of;
using Batch = testing::PipelineBatch;
using Net = testing::PipelineNet;

struct Outcome {
  Net net;
  Array loss, losses;
};

/// Runs two steps. The second one takes the results of the first one.
Outcome run(const Schedule& schedule, const MpmdMesh& mesh, std::int64_t microbatches) {
  const auto step =
      mpmd_jit_with_loop([&](Net net, Batch batch) { return step_of(net, batch, schedule); }, mesh,
                         {.donate_argnums = {0}});
  const use_mesh scope(mesh.group_mesh());
  const Batch batch = device_put(make_batch(microbatches), P{none, "data"});
  auto [net, loss, losses] = step(device_put(make_net(), P{}), batch);
  std::tie(net, loss, losses) = step(std::move(net), batch);
  return {net, loss, losses};
}

void expect_same(const Outcome& found, const Outcome& wanted) {
  const std::vector<Array> x = tree_leaves(found.net);
  const std::vector<Array> y = tree_leaves(wanted.net);
  for (std::size_t i = 0; i < x.size(); ++i) expect_same_bits(x[i], y[i]);
  expect_same_bits(found.loss, wanted.loss);
  expect_same_bits(found.losses, wanted.losses);
}

TEST(Pipeline, AllSchedulesHaveTheBitsOfTheLoop) {
  for (const std::int64_t microbatches : {4, 8}) {
    const Outcome wanted = run(Sequential{1}, groups(1), microbatches);
    for (const pipeline::ScheduleRecord& record : pipeline::schedule_records()) {
      const std::string name(record.name);
      const std::int64_t ranks = name == "Sequential" ? 1 : 2;
      const std::int64_t stages = record.stages == pipeline::StagesPerRank::one ? 2 : 4;
      const FixedSchedule schedule{
          .num_stages = stages,
          .mpmd_dim = ranks,
          .num_microbatches = microbatches,
          .list = schedule_tasks(name, {.num_stages = stages, .mpmd_dim = ranks}, microbatches)};
      SCOPED_TRACE(name);
      expect_same(run(schedule, groups(ranks), microbatches), wanted);
    }
  }
}

TEST(Pipeline, AnyNumberOfStagesGroupsAndDevicesHasTheSameBits) {
  const Outcome wanted = run(Sequential{1}, groups(1), 4);
  expect_same(run(Sequential{8, 1}, groups(1), 4), wanted);
  expect_same(run(GPipe{8}, groups(8), 4), wanted);
  expect_same(run(Std1F1B{2}, groups(2, 4), 4), wanted);
  expect_same(run(ZeroBubble{4}, groups(4, 2), 4), wanted);
  expect_same(run(Interleaved1F1B{8, 4}, groups(4, 2), 4), wanted);
  expect_same(run(DualPipeV{4, 2}, groups(2, 2), 4), wanted);
  expect_same(run(AutoSchedule{.num_stages = 4}, groups(4), 4), wanted);
  set_num_threads(1);
  expect_same(run(Interleaved1F1B{4}, groups(4), 4), wanted);
  set_num_threads(2);
}

TEST(Pipeline, HasTheBitsOfATreduceOutsideOfPipelines) {
  const Outcome wanted = run(Interleaved1F1B{4}, groups(4), 4);
  const auto step = jit([&](Net net, Batch batch) { return step_of(net, batch, GPipe{4}); });
  auto [net, loss, losses] = step(make_net(), make_batch(4));
  std::tie(net, loss, losses) = step(net, make_batch(4));
  expect_same({net, loss, losses}, wanted);
}

/// The parts are those of one device, so they add up to its peak.
TEST(Pipeline, ThePlannedMemoryIsThatOfOneDevice) {
  for (const std::int64_t ranks : {1, 4}) {
    const MpmdMesh mesh = groups(ranks);
    const Interleaved1F1B schedule{ranks};
    const auto step = mpmd_jit_with_loop(
        [&](Net net, Batch batch) { return step_of(net, batch, schedule); }, mesh);
    const use_mesh scope(mesh.group_mesh());
    const Batch batch = device_put(make_batch(4), P{none, "data"});
    const MemoryPlan plan = step.lower(device_put(make_net(), P{}), batch).compile().memory();
    ASSERT_EQ(plan.group_peaks.size(), static_cast<std::size_t>(ranks));
    EXPECT_EQ(plan.peak, *std::max_element(plan.group_peaks.begin(), plan.group_peaks.end()));
    EXPECT_EQ(plan.arguments + plan.results + plan.temporaries, plan.peak);
    EXPECT_GT(plan.arguments, 0);
    EXPECT_GT(plan.temporaries, 0);
  }
}

TEST(Pipeline, EqualsAHandWrittenScanWhereNothingIsUsedTwice) {
  const Array w = numbers({kWidth, kWidth}, 3);
  const Array v = numbers({kWidth, kWidth}, 4);
  const Array xs = numbers({4, 2, kWidth}, 5);
  const auto gradient = [](const std::tuple<Array, Array>& params, Array x) {
    return value_and_grad([&](const std::tuple<Array, Array>& p) {
      const Array h = mark_stage_end(tanh(dot(x, std::get<0>(p))));
      return sum(square(mark_stage_end(dot(h, std::get<1>(p)))));
    })(params);
  };
  using Total = std::tuple<Array, std::tuple<Array, Array>>;
  const std::tuple<Array, Array> params(w, v);
  const auto by_hand = jit([&](std::tuple<Array, Array> p, Array x) {
    const auto add = [&](Total total, Array slice) {
      const auto plus = [](const Array& a, const Array& b) { return a + b; };
      return std::pair(tree_map(plus, total, Total(gradient(p, slice))), std::tuple<>());
    };
    const auto zero = [](const Array& a) { return zeros_like(a); };
    return scan(add, Total(zeros({}), tree_map(zero, p)), x).first;
  })(params, xs);
  const auto piped = mpmd_jit_with_loop(
      [&](std::tuple<Array, Array> p, Array x) {
        return treduce([&](Array slice) { return gradient(p, slice); }, x, ZeroBubble{2});
      },
      groups(2))(params, xs);
  const std::vector<Array> x = tree_leaves(by_hand);
  const std::vector<Array> y = tree_leaves(piped);
  for (std::size_t i = 0; i < x.size(); ++i) expect_same_bits(y[i], x[i]);
}

/// Gradients of matrices, two in each of two stages, for the microbatches `xs`.
std::vector<Array> weight_gradients(const Schedule& schedule, const std::vector<Array>& weights,
                                    const Array& xs) {
  const auto gradients = [&](const Array& x) {
    return grad([&](const std::vector<Array>& params) {
      Array y = with_sharding_constraint(x, P{"data"});
      for (std::size_t i = 0; i < params.size(); ++i) {
        y = dot(y, params[i]);
        if (i % 2 == 1) y = mark_stage_end(tanh(y));
      }
      return sum(square(y));
    })(weights);
  };
  return treduce(gradients, xs, schedule);
}

void expect_gradients_of_the_loop(const Schedule& schedule, std::int64_t devices, const Array& xs) {
  const auto with = [](const Schedule& how) {
    return [how](const std::vector<Array>& params, const Array& rows) {
      return weight_gradients(how, params, rows);
    };
  };
  std::vector<Array> weights;
  for (int i = 0; i < 4; ++i) weights.push_back(numbers({kWidth, kWidth}, i));
  const std::vector<Array> wanted = jit(with(Sequential{1}))(weights, xs);
  const MpmdMesh mesh = groups(2, devices);
  const use_mesh scope(mesh.group_mesh());
  const std::vector<Array> found = mpmd_jit_with_loop(with(schedule), mesh)(
      device_put(weights, P{}), device_put(xs, P{none, "data"}));
  for (std::size_t i = 0; i < wanted.size(); ++i) expect_same_bits(found[i], wanted[i]);
}

// With three devices, the row boundaries of the weights are not grain boundaries. So a weight's
// gradient is split over its columns, but the sum of the gradients is not.
TEST(Pipeline, SumsThatLieOtherwiseThanWhatIsAdded) {
  for (const Schedule& schedule : {Schedule(ZeroBubble{2}), Schedule(ZBH2{2}), Schedule(GPipe{2})})
    expect_gradients_of_the_loop(schedule, 3, numbers({4, 3, 8, kWidth}));
}

// A task that fuses both halves of a backward pass has the operands of the whole backward task in
// another order. Here all operands have the same type, so types cannot tell the two apart.
TEST(Pipeline, HalvesThatAreFusedAndWholeBackwardTasks) {
  const FixedSchedule schedule = read_schedule(
      "fwd_0__0,fwd_0__1,fwd_0__2,fwd_0__3,bwdA_0__0+bwdW_0__0,bwd_0__1,bwdA_0__2+bwdW_0__2,"
      "bwd_0__3\n"
      "fwd_1__0,bwd_1__0,fwd_1__1,bwdA_1__1+bwdW_1__1,fwd_1__2,bwd_1__2,fwd_1__3,"
      "bwdA_1__3+bwdW_1__3\n");
  expect_gradients_of_the_loop(schedule, 1, numbers({4, kWidth, kWidth}));
}

// The loop reads and adds to one row of the sum of such gradients, at a position that the forward
// pass has computed.
TEST(Pipeline, GradientsOfOneRowAtAComputedPosition) {
  const auto with = [](const Schedule& schedule) {
    return [schedule](Array table, Array weights, Array ids) {
      const auto loss = [](Array id) {
        return [id](Array t, Array w) {
          const Array x = mark_stage_end(dynamic_slice(t, {id[0], 0}, {1, kWidth}));
          return sum(mark_stage_end(tanh(dot(x, w) + take(t, id[1]))));
        };
      };
      const auto gradients = [&](Array id) {
        return value_and_grad<0, 1>(loss(id))(table, weights);
      };
      return treduce(gradients, ids, schedule);
    };
  };
  const Array table = numbers({8, kWidth}, 1);
  const Array weights = numbers({kWidth, kWidth}, 2);
  const Array ids = reshape(array({3, 1, 3, 6, 1, 3, 0, 7}), {4, 2});
  const auto wanted = tree_leaves(jit(with(Sequential{1}))(table, weights, ids));
  for (const Schedule& schedule :
       {Schedule(Sequential{2, 1}), Schedule(GPipe{2}), Schedule(ZeroBubble{2})}) {
    const std::int64_t ranks = schedule.mpmd_dim();
    const auto found =
        tree_leaves(mpmd_jit_with_loop(with(schedule), groups(ranks))(table, weights, ids));
    for (std::size_t i = 0; i < wanted.size(); ++i) expect_same_bits(found[i], wanted[i]);
  }
}

TEST(Pipeline, OperationsOtherThanAdd) {
  const Array w = numbers({3}, 1);
  const Array xs = numbers({4, 3}, 2);
  const auto f = [&](Array i) {
    const Array x = mark_stage_end(w * (i.type().rank() == 0 ? astype(i, DType::f32) : i));
    return std::tuple(x, max(x), x);
  };
  const auto step = [&](const Schedule& schedule) {
    return mpmd_jit_with_loop(
        [&, schedule](Array x) {
          return treduce(f, x, schedule, std::tuple(Concat{1}, Max{}, Add{}));
        },
        groups(1))(xs);
  };
  const auto [stacked, greatest, total] = step(Sequential{1});
  expect_same_bits(stacked, transpose(w * xs));
  expect_same_bits(greatest, max(w * xs));
  expect_same_bits(total, ((zeros({3}) + w * xs[0]) + w * xs[1] + w * xs[2]) + w * xs[3]);
  const Array numbered = jit([&] {
    return treduce_i([&](Array i) { return astype(i, DType::f32) * w; }, 3, Sequential{1});
  })();
  expect_same_bits(numbered, w * 0.0F + w + w * 2.0F);
}

TEST(Pipeline, ArraysLiveWhereTheyAreUsed) {
  const MpmdMesh mesh = groups(4);
  const Outcome outcome = run(Interleaved1F1B{4}, mesh, 4);
  const auto idxs = [](const Array& array) { return MpmdArray(array).mpmd_idxs(); };
  using Groups = std::vector<std::int64_t>;
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(idxs(outcome.net.layers[i]), Groups{static_cast<std::int64_t>(i / 2)});
  }
  EXPECT_EQ(idxs(outcome.loss), Groups{3});
  const MpmdArray layer(outcome.net.layers[2]);
  EXPECT_EQ(to_string(layer),
            "MpmdArray(shape=(16, 16), dtype=f32, mpmd_idxs=(1,), "
            "sharding=NamedSharding(mesh=Mesh('stage': 1, 'data': 1), spec=P()))");
  EXPECT_FALSE(layer.is_mpmd_replicated());
  expect_same_bits(layer.to_mpmd_local_array(1), outcome.net.layers[2]);
  EXPECT_EQ(mistake_of([&] { layer.to_mpmd_local_array(2); }).wanted, "one of the groups 1");
  EXPECT_EQ(mesh.unstack().size(), 4U);
}

/// The shardings that a step reports for its arguments name the groups. Functions that make the
/// arguments can therefore place them there directly.
TEST(Pipeline, ArgumentsAreMadeInTheirGroups) {
  const MpmdMesh mesh = groups(4);
  const use_mesh scope(mesh.group_mesh());
  const auto step = mpmd_jit_with_loop(
      [](const Net& net, const Batch& batch) {
        return std::get<1>(step_of(net, batch, Interleaved1F1B{4}));
      },
      mesh);
  const auto lowered = step.lower(eval_shape(make_net), eval_shape([] { return make_batch(4); }));
  const Shardings places = Shardings::of(lowered.arguments());
  using Groups = std::vector<std::int64_t>;
  EXPECT_EQ(places["0"].find("layers/2")->mpmd_idxs, Groups{1});
  EXPECT_EQ(places["0"].find("tied")->mpmd_idxs, (Groups{0, 3}));
  EXPECT_NE(to_string(places).find("0/layers/2: P() in groups [1]"), std::string::npos)
      << to_string(places);
  const Net made = jit(make_net, {.out_shardings = places["0"]})();
  const Net put = device_put(make_net(), places["0"]);
  const std::vector<NamedSharding> wanted = leaf_shardings(make_net(), places["0"]);
  const std::vector<Array> leaves = tree_leaves(made);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_EQ(leaves[i].sharding(), wanted[i]);
    EXPECT_EQ(tree_leaves(put)[i].sharding(), wanted[i]);
    EXPECT_EQ(MpmdArray(leaves[i]).mpmd_idxs(), wanted[i].mpmd_idxs);
    expect_same_bits(leaves[i], tree_leaves(make_net())[i]);
  }
  expect_same_bits(step(made, make_batch(4)), step(make_net(), make_batch(4)));
  // Outputs that are inputs, and results of a pipeline, also go to the groups asked for.
  NamedSharding second(mesh.group_mesh(), P{});
  second.mpmd_idxs = {2};
  const Array moved = jit([](Array x) { return x; }, {.out_shardings = second})(ones({3}));
  EXPECT_EQ(MpmdArray(moved).mpmd_idxs(), Groups{2});
  EXPECT_EQ(to_string(second).find("mpmd_idxs=[2]") != std::string::npos, true);
  const auto loss = mpmd_jit_with_loop(
      [](const Net& net, const Batch& batch) {
        return std::get<1>(step_of(net, batch, Interleaved1F1B{4}));
      },
      mesh, {.out_shardings = second});
  EXPECT_EQ(MpmdArray(loss(made, make_batch(4))).mpmd_idxs(), Groups{2});
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

TEST(Pipeline, TasksAndTransfersAreListed) {
  const Array w = numbers({8, kWidth, kWidth}, 3);
  const Array xs = numbers({4, 2, kWidth}, 5);
  const auto step = [&](const Schedule& schedule) {
    return mpmd_jit_with_loop(
               [&, schedule](std::vector<Array> p, Array x) {
                 return treduce(
                     [&](Array slice) {
                       return value_and_grad([&](const std::vector<Array>& params) {
                         for (std::size_t i = 0; i < 8; ++i) {
                           slice = tanh(dot(slice, params[i]));
                           const auto stages = static_cast<std::size_t>(schedule.num_stages());
                           if ((i + 1) % (8 / stages) == 0) slice = mark_stage_end(slice);
                         }
                         return sum(slice);
                       })(p);
                     },
                     x, schedule);
               },
               groups(4))
        .lower(std::vector<Array>{w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]}, xs)
        .task_ir();
  };
  const std::string four = step(Interleaved1F1B{4});
  // 4 tasks before the loop, 12 forward, 12 backward, 4 fused.
  EXPECT_EQ(count(four, "= task["), 32U);
  EXPECT_EQ(count(four, "= transfer["), 24U);
  EXPECT_EQ(count(four, "name=fused_fwd_3_bwd_3"), 4U);
  EXPECT_GT(count(four, "delete[group=0]"), 0U);
  const std::string zero = step(ZeroBubble{4});
  EXPECT_EQ(count(zero, "name=bwdW_"), 16U);
  EXPECT_EQ(count(zero, "= transfer["), 24U);
}

TEST(Pipeline, MeasuredRunsHaveTheFormOfSimulations) {
  const ScheduleTasks tasks = Std1F1B{2}.tasks(4);
  start_timeline();
  run(Std1F1B{2}, groups(2), 4);
  const std::vector<TaskTime> times = stop_timeline();
  for (const std::int64_t step : {0, 1}) {
    const Simulation found = measured(tasks, times, step);
    ASSERT_EQ(found.ranks.size(), 2U);
    EXPECT_EQ(found.peak_in_flight, simulate(tasks).peak_in_flight);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      for (std::size_t i = 0; i < tasks[rank].size(); ++i) {
        EXPECT_EQ(found.ranks[rank][i].task, tasks[rank][i]);
        if (i == 0) continue;
        EXPECT_GE(found.ranks[rank][i].start, found.ranks[rank][i - 1].end());
      }
    }
  }
  const ScheduleCosts costs = measured_costs(times, 2);
  EXPECT_GT(costs.stages[0].fwd, 0);
  EXPECT_GT(costs.stages[1].bwd_input, 0);
  EXPECT_EQ(mistake_of([&] { measured(tasks, times, 2); }).what,
            "measured: fwd_0__0 was not recorded");
}

}  // namespace
}  // namespace tessera
