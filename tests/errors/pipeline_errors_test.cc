// Mistakes in steps that run as pipelines.
#include <gtest/gtest.h>
#include <utility>

#include <tessera/tessera.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

MpmdMesh groups(std::int64_t count) { return {make_mesh({{"stage", count}}), "stage"}; }

/// Compiles a pipeline of two groups over microbatches of f32[2,3].
template <typename F, typename Op = Add>
void pipe(F microbatch, const Schedule& schedule = GPipe{2}, const Op& operation = {},
          std::source_location where = std::source_location::current()) {
  const auto step = [&](Array x) { return treduce(microbatch, x, schedule, operation, where); };
  mpmd_jit_with_loop(step, groups(2), {}, where)(ones({4, 2, 3}));
}

Array two_stages(const Array& x) { return sum(mark_stage_end(mark_stage_end(x * 2) * 3)); }

TEST(PipelineErrors, TooFewMarks) {
  const Caught error = caught([] { pipe([](Array x) { return sum(mark_stage_end(x)); }); });
  EXPECT_EQ(error.text,
            "treduce: the schedule and the marks disagree on the number of stages\n"
            "  where:  <this line>\n"
            "  found:  1 mark\n"
            "  wanted: 2 for the schedule's 2 stages\n"
            "  cure:   call mark_stage_end at the end of each stage, the last one included, or "
            "give the schedule another num_stages");
}

TEST(PipelineErrors, NoMarks) {
  const Caught error = caught([] { pipe([](Array x) { return sum(x); }); });
  EXPECT_EQ(error.text,
            "treduce: the schedule and the marks disagree on the number of stages\n"
            "  where:  <this line>\n"
            "  found:  0 marks\n"
            "  wanted: 2 for the schedule's 2 stages\n"
            "  cure:   call mark_stage_end at the end of each stage, the last one included, or "
            "give the schedule another num_stages");
}

TEST(PipelineErrors, TooManyMarks) {
  const Caught error = caught([] { pipe([](Array x) { return two_stages(mark_stage_end(x)); }); });
  EXPECT_EQ(error.text,
            "treduce: the schedule and the marks disagree on the number of stages\n"
            "  where:  <this line>\n"
            "  found:  3 marks\n"
            "  wanted: 2 for the schedule's 2 stages\n"
            "  cure:   call mark_stage_end at the end of each stage, the last one included, or "
            "give the schedule another num_stages");
}

TEST(PipelineErrors, MarkInALoop) {
  std::string line;
  const Caught error = caught([&] {
    pipe([&](Array x) {
      const auto layer = [&](Array h) {
        line = line_of(1);
        return mark_stage_end(h * 2);
      };
      return sum(mark_stage_end(remat(layer)(x)));
    });
  });
  EXPECT_EQ(error.text, std::string("mark_stage_end: a stage ends inside a nested function\n") +
                            "  where:  " + line +
                            "\n"
                            "  found:  a mark within scan, while_loop, cond, remat or custom_vjp\n"
                            "  wanted: marks in the function given to treduce itself\n"
                            "  cure:   call the nested function first, then mark its result");
}

TEST(PipelineErrors, ResultThatDoesNotPassThroughAStage) {
  const auto f = [](Array x) {
    mark_stage_end(x * 2);
    return sum(mark_stage_end(x * 3));
  };
  const Caught error = caught([&] { pipe(f); });
  EXPECT_EQ(error.text,
            "treduce: the results do not depend on every stage\n"
            "  where:  <this line>\n"
            "  found:  the result of mark_stage_end for stage 0 is not used\n"
            "  wanted: results that are computed through all stages\n"
            "  cure:   use what mark_stage_end returns, and return a loss that depends on it");
}

Array loss_of_two_stages(const Array& w, const Array& x) {
  return sum(mark_stage_end(dot(mark_stage_end(tanh(dot(x, w))), w)));
}

TEST(PipelineErrors, DerivativeOfTheLoop) {
  for (const bool has_loss : {false, true}) {
    const auto step = [&](const Array& w, std::source_location where) {
      const auto loss = [&](Array v) {
        return treduce([&](Array x) { return loss_of_two_stages(v, x); }, ones({4, 2, 3}), GPipe{2},
                       Add{}, where);
      };
      auto [value, gradient] = value_and_grad(loss)(w);
      return std::pair(gradient, has_loss ? value : zeros({}));
    };
    const auto run = [&](std::source_location where = std::source_location::current()) {
      mpmd_jit_with_loop([&](Array w) { return step(w, where); }, groups(2))(ones({3, 3}));
    };
    const Caught error = caught([&] { run(); });
    EXPECT_EQ(error.text,
              "treduce: the derivative is taken outside of the loop over microbatches\n"
              "  where:  <this line>\n"
              "  found:  grad or value_and_grad of a function that calls treduce\n"
              "  wanted: the derivative of one microbatch, so that the pipeline has its backward "
              "pass\n"
              "  cure:   call value_and_grad inside the function given to treduce, and return its "
              "results");
  }
}

TEST(PipelineErrors, DerivativeOfADerivative) {
  std::string line;
  for (const bool has_loss : {false, true}) {
    const Caught error = caught([&] {
      pipe([&](Array x) {
        const auto loss = [&](Array w) {
          line = line_of(1);
          const Array y = mark_stage_end(tanh(dot(x, w)));
          return sum(mark_stage_end(tanh(dot(y, w))));
        };
        const auto steepness = [&](Array w) {
          const auto [value, gradient] = value_and_grad(loss)(w);
          return sum(square(gradient)) + (has_loss ? value : zeros({}));
        };
        return value_and_grad(steepness)(ones({3, 3}));
      });
    });
    EXPECT_EQ(
        error.text,
        "mark_stage_end: a forward pass depends on a backward pass\n"
        "  where:  " +
            line +
            "\n"
            "  found:  a stage whose result is computed from a gradient, as in the derivative "
            "of a derivative\n"
            "  wanted: stages that are differentiated once in the function given to treduce\n"
            "  cure:   compile the function with jit instead of mpmd_jit_with_loop, or "
            "differentiate only once");
  }
}

TEST(PipelineErrors, NoLoop) {
  const auto step = [](Array x) { return x * 2; };
  const Caught error = caught([&] { mpmd_jit_with_loop(step, groups(2))(ones({4})); });
  EXPECT_EQ(error.text,
            "mpmd_jit_with_loop: there is no loop to run as a pipeline\n"
            "  where:  <this line>\n"
            "  found:  no treduce\n"
            "  wanted: one treduce directly in the function\n"
            "  cure:   put the work of a microbatch into treduce, and return its result");
}

TEST(PipelineErrors, LoopWhoseResultIsNotUsed) {
  const auto step = [](Array x, std::source_location where) {
    treduce(two_stages, x, GPipe{2}, Add{}, where);
    return x * 2;
  };
  const auto run = [&](std::source_location where = std::source_location::current()) {
    mpmd_jit_with_loop([&](Array x) { return step(x, where); }, groups(2))(ones({4, 2}));
  };
  const Caught error = caught([&] { run(); });
  EXPECT_EQ(error.text,
            "mpmd_jit_with_loop: there is no loop to run as a pipeline\n"
            "  where:  <this line>\n"
            "  found:  a treduce inside another loop, or one whose results are not used\n"
            "  wanted: one treduce directly in the function\n"
            "  cure:   put the work of a microbatch into treduce, and return its result");
}

TEST(PipelineErrors, TwoLoops) {
  std::string first;
  const auto step = [&](Array x, std::source_location where) {
    first = line_of(1);
    const Array a = treduce(two_stages, x, GPipe{2});
    return a + treduce(two_stages, x, GPipe{2}, Add{}, where);
  };
  const auto here = [&](std::source_location where = std::source_location::current()) {
    mpmd_jit_with_loop([&](Array x) { return step(x, where); }, groups(2))(ones({4, 2, 3}));
  };
  const Caught error = caught([&] { here(); });
  EXPECT_EQ(error.text,
            std::string("treduce: a pipeline can have only one loop, and this is the second\n") +
                "  where:  <this line>\n"
                "  found:  another treduce at " +
                first +
                "\n"
                "  wanted: one treduce in the function given to mpmd_jit_with_loop\n"
                "  cure:   put both into one function of a microbatch, or make two steps");
}

TEST(PipelineErrors, ScheduleOfOtherGroups) {
  const Caught error = caught([] { pipe(two_stages, GPipe{3}); });
  EXPECT_EQ(error.text,
            "treduce: the schedule is for a different number of groups\n"
            "  where:  <this line>\n"
            "  found:  mpmd_dim = 3\n"
            "  wanted: 2, the groups of the MpmdMesh\n"
            "  cure:   write .mpmd_dim = 2, or make another mesh");
}

/// Swaps two backward tasks of stage 1.
struct Swapped {
  std::int64_t num_stages = 2;
  std::int64_t mpmd_dim = 2;
  ScheduleTasks tasks(std::int64_t count) const {
    ScheduleTasks list = GPipe{2}.tasks(count);
    std::swap(list[1][4], list[1][5]);
    return list;
  }
};

TEST(PipelineErrors, SumsOutOfOrder) {
  const auto f = [](Array x) {
    return value_and_grad([&](Array w) { return sum(mark_stage_end(mark_stage_end(x * w) * w)); })(
        ones({2, 3}));
  };
  const Caught error = caught([&] { pipe(f, Swapped{}); });
  EXPECT_EQ(error.text,
            "schedule: bwd_1__0 comes too late\n"
            "  where:  <this line>\n"
            "  found:  bwd_1__1 before bwd_1__0 on rank 1\n"
            "  wanted: the microbatches of a stage in increasing order, because sums are added in "
            "that order\n"
            "  cure:   swap the two on rank 1");
}

/// Delays the weight gradients of stage 1 for the first microbatch until after the second one's.
struct Delayed {
  std::int64_t num_stages = 2;
  std::int64_t mpmd_dim = 2;
  ScheduleTasks tasks(std::int64_t count) const {
    ScheduleTasks list = GPipe{2}.tasks(count);
    list[1][4] = {{{TaskKind::bwd_input, 1, 0}}};
    list[1].insert(list[1].begin() + 6, FusedTask{{{TaskKind::bwd_weight, 1, 0}}});
    return list;
  }
};

TEST(PipelineErrors, WeightGradientsOutOfOrder) {
  const auto f = [](Array x) {
    return value_and_grad([&](Array w) {
      const Array wide = dot(x, ones({3, 16}));
      return sum(mark_stage_end(dot(mark_stage_end(tanh(dot(wide, w))), w)));
    })(ones({16, 16}));
  };
  const Caught error = caught([&] { pipe(f, Delayed{}); });
  EXPECT_EQ(error.text,
            "schedule: bwdW_1__0 comes too late\n"
            "  where:  <this line>\n"
            "  found:  bwd_1__1 before bwdW_1__0 on rank 1\n"
            "  wanted: the microbatches of a stage in increasing order, because sums are added in "
            "that order\n"
            "  cure:   swap the two on rank 1");
}

TEST(PipelineErrors, NoMicrobatches) {
  const Caught error = caught([] { treduce(two_stages, ones({0, 3}), GPipe{2}); });
  EXPECT_EQ(error.text,
            "treduce: there are no microbatches\n"
            "  where:  <this line>\n"
            "  found:  f32[0,3]\n"
            "  wanted: arrays with at least one microbatch\n"
            "  cure:   pass arrays whose leading dimension counts microbatches");
}

TEST(PipelineErrors, NoArrays) {
  const auto f = [] { return ones({}); };
  const Caught error = caught([&] { treduce(f, std::tuple<>(), GPipe{2}); });
  EXPECT_EQ(error.text,
            "treduce: there are no microbatches\n"
            "  where:  <this line>\n"
            "  found:  no arrays\n"
            "  wanted: arrays with at least one microbatch\n"
            "  cure:   pass arrays whose leading dimension counts microbatches");
}

TEST(PipelineErrors, ScalarMicrobatches) {
  const Caught error = caught([] { treduce(two_stages, ones({}), GPipe{2}); });
  EXPECT_EQ(
      error.text,
      "treduce: the array does not have one slice per microbatch\n"
      "  where:  <this line>\n"
      "  found:  f32[]\n"
      "  wanted: a leading dimension with one slice per microbatch\n"
      "  cure:   reshape the batch to {microbatches, rows, ...}, or capture the array instead");
}

TEST(PipelineErrors, DifferentNumbersOfMicrobatches) {
  const auto f = [](const Array& x, const Array& y) { return sum(x) + sum(y); };
  const auto xs = std::tuple(ones({4, 3}), ones({2, 3}));
  const Caught error = caught([&] { treduce(f, xs, GPipe{2}); });
  EXPECT_EQ(
      error.text,
      "treduce: leaf 1 does not have one slice per microbatch\n"
      "  where:  <this line>\n"
      "  found:  f32[2,3]\n"
      "  wanted: 4 slices, as leaf 0 has\n"
      "  cure:   reshape the batch to {microbatches, rows, ...}, or capture the array instead");
}

TEST(PipelineErrors, NegativeLength) {
  const auto f = [](const Array& i) { return i; };
  const Caught error = caught([&] { treduce_i(f, -1, GPipe{2}); });
  EXPECT_EQ(error.text,
            "treduce_i: there are no microbatches\n"
            "  where:  <this line>\n"
            "  found:  -1\n"
            "  wanted: a length of at least 1\n"
            "  cure:   ask for at least one microbatch");
}

TEST(PipelineErrors, AxisOfConcat) {
  const Caught error = caught([] { treduce(two_stages, ones({4, 3}), GPipe{2}, Concat{1}); });
  EXPECT_EQ(error.text,
            "treduce: the operation cannot be applied to the result\n"
            "  where:  <this line>\n"
            "  found:  Concat{1} of f32[]\n"
            "  wanted: axes 0 to 0\n"
            "  cure:   give a position for the new dimension");
}

TEST(PipelineErrors, SumOfBooleans) {
  const auto f = [](const Array& x) { return std::tuple(sum(x), x > 0); };
  const Caught error = caught([&] { treduce(f, ones({4, 3}), GPipe{2}); });
  EXPECT_EQ(error.text,
            "treduce: the operation cannot be applied to leaf 1\n"
            "  where:  <this line>\n"
            "  found:  bool[3]\n"
            "  wanted: numbers to add or to compare\n"
            "  cure:   convert it with astype, or use Concat{}");
}

TEST(PipelineErrors, MeshWithoutTheAxis) {
  const Caught error = caught([] { MpmdMesh(make_mesh({{"data", 4}}), "stage"); });
  EXPECT_EQ(error.text,
            "MpmdMesh: the mesh has no axis named 'stage'\n"
            "  where:  <this line>\n"
            "  found:  the mesh data=4\n"
            "  wanted: one of the axes data\n"
            "  cure:   name the axis along which the devices form groups");
}

TEST(PipelineErrors, ArrayOfNoGroups) {
  const Caught error = caught([] { MpmdArray(ones({2, 3})); });
  EXPECT_EQ(error.text,
            "MpmdArray: the array is not held by groups of devices\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an array that a function of mpmd_jit_with_loop returned\n"
            "  cure:   run the step first, or use the Array itself");
}

TEST(PipelineErrors, ArrayOfAnotherGroup) {
  const auto step = [](Array x) { return treduce(two_stages, x, GPipe{2}); };
  const MpmdArray loss(mpmd_jit_with_loop(step, groups(2))(ones({4, 2, 3})));
  const Caught error = caught([&] { loss.to_mpmd_local_array(0); });
  EXPECT_EQ(error.text,
            "to_mpmd_local_array: the group does not hold the array\n"
            "  where:  <this line>\n"
            "  found:  group 0\n"
            "  wanted: one of the groups 1\n"
            "  cure:   ask for one of mpmd_idxs()");
}

TEST(PipelineErrors, GroupsOutOfOrder) {
  NamedSharding sharding(make_mesh({{"data", 2}}), P{});
  sharding.mpmd_idxs = {2, 1};
  const Caught error = caught([&] { device_put(ones({2, 3}), sharding); });
  EXPECT_EQ(error.text,
            "device_put: these groups cannot hold an array over this mesh\n"
            "  where:  <this line>\n"
            "  found:  mpmd_idxs [2, 1] and data=2\n"
            "  wanted: ascending numbers, 0 or more\n"
            "  cure:   use the groups of an MpmdMesh, and its group_mesh(); an empty list means "
            "all groups");
}

TEST(PipelineErrors, NegativeThreadsPerGroup) {
  const Caught error = caught([] { set_threads_per_group(-1); });
  EXPECT_EQ(error.text,
            "set_threads_per_group: the number of threads is out of range\n"
            "  where:  <this line>\n"
            "  found:  -1\n"
            "  wanted: 1 or more, or 0 for any number\n"
            "  cure:   pass 1 to let each group compute as one device");
}

TEST(PipelineErrors, StepThatWasNotRecorded) {
  const Caught error = caught([] { measured(GPipe{2}.tasks(4), {}); });
  EXPECT_EQ(error.text,
            "measured: fwd_0__0 was not recorded\n"
            "  where:  <this line>\n"
            "  found:  no recorded time for this task on rank 0\n"
            "  wanted: a complete recording of a step with this schedule\n"
            "  cure:   call start_timeline before the step and stop_timeline after it");
}

TEST(PipelineErrors, ArgumentOnAnotherMesh) {
  const Array x = device_put(ones({4, 2, 3}), NamedSharding(make_mesh({{"data", 2}}), P{}));
  const auto step = [](Array xs) { return treduce(two_stages, xs, GPipe{2}); };
  const auto piped = mpmd_jit_with_loop(step, groups(2));
  const Caught error = caught([&] { piped(x); });
  EXPECT_EQ(error.text,
            "the arrays of a call are on different meshes\n"
            "  where:  <this line>\n"
            "  found:  argument 0 on data=2\n"
            "  wanted: stage=1, the mesh of a group of the MpmdMesh\n"
            "  cure:   move the array with device_put(x, NamedSharding(mesh, P{...})), or call the "
            "function in a use_mesh scope for the mesh of the array");
}

}  // namespace
}  // namespace tessera
