// The order of instructions: dependent steps stay in order, and the memory in use never exceeds
// that of the given order.
#include "compile/host/plan/order.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "compile/host/lower.h"
#include "compile/host/plan/plan.h"
#include "compile/host/plan/plan_memory.h"
#include "partition/test_programs.h"

namespace tessera::compile::host {
namespace {

using partition::testing::MlpStep;
using Order = std::vector<std::size_t>;

bool has(const std::vector<std::size_t>& list, std::size_t item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

/// The bytes in use while each step runs, found by scanning the whole order for each step.
std::vector<std::int64_t> bytes_in_use(const OrderProblem& problem, const Order& order) {
  std::vector<std::int64_t> bytes(order.size());
  for (std::size_t value = 0; value < problem.bytes.size(); ++value) {
    std::size_t begin = order.size();
    std::size_t end = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const OrderProblem::Step& step = problem.steps[order[i]];
      if (has(step.writes, value)) begin = std::min(begin, i);
      if (has(step.writes, value) || has(step.reads, value)) end = i;
    }
    for (std::size_t i = begin; i < order.size() && i <= end; ++i) bytes[i] += problem.bytes[value];
  }
  for (std::size_t i = 0; i < order.size(); ++i) bytes[i] += problem.steps[order[i]].scratch;
  return bytes;
}

std::int64_t peak(const OrderProblem& problem, const Order& order) {
  const std::vector<std::int64_t> bytes = bytes_in_use(problem, order);
  return *std::max_element(bytes.begin(), bytes.end());
}

/// Whether one step has to run before a later one.
bool depends(const OrderProblem& problem, std::size_t early, std::size_t late) {
  const OrderProblem::Step& a = problem.steps[early];
  const OrderProblem::Step& b = problem.steps[late];
  const auto meets = [](const std::vector<std::size_t>& x, const std::vector<std::size_t>& y) {
    return std::any_of(x.begin(), x.end(), [&](std::size_t value) { return has(y, value); });
  };
  return meets(a.writes, b.reads) || meets(a.writes, b.writes) || meets(a.reads, b.writes) ||
         has(b.after, early);
}

Order as_given(const OrderProblem& problem) {
  Order order(problem.steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

/// Steps that read a few of the latest values, or some of the oldest, and write one or two.
OrderProblem random_problem(std::uint32_t seed) {
  std::minstd_rand random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  OrderProblem problem;
  for (int i = 0; i < 4; ++i) problem.bytes.push_back(0);
  for (std::size_t i = 0; i < 60; ++i) {
    OrderProblem::Step step;
    for (std::size_t n = below(4); n > 0; --n) {
      const std::size_t back = below(3) == 0 ? problem.bytes.size() : 8;
      step.reads.push_back(problem.bytes.size() - 1 - below(std::min(back, problem.bytes.size())));
    }
    for (std::size_t n = below(12) == 0 ? 2 : 1; n > 0; --n) {
      step.writes.push_back(problem.bytes.size());
      problem.bytes.push_back(below(4) == 0 ? 0 : static_cast<std::int64_t>(below(100)));
    }
    if (below(10) == 0 && i > 4) step.writes.push_back(4 + below(problem.bytes.size() - 4));
    if (below(10) == 0 && i > 0) step.after.push_back(below(i));
    if (below(6) == 0) step.scratch = static_cast<std::int64_t>(below(300));
    problem.steps.push_back(std::move(step));
  }
  return problem;
}

/// The place of each step. Expects that the order contains all steps, each after the steps that it
/// depends on.
std::vector<std::size_t> places_in(const Order& order, const OrderProblem& problem) {
  Order sorted = order;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, as_given(problem));
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  for (std::size_t late = 0; late < order.size(); ++late) {
    for (std::size_t early = 0; early < late; ++early) {
      if (!depends(problem, early, late)) continue;
      EXPECT_LT(place[early], place[late]);
    }
  }
  return place;
}

TEST(Order, RandomStepsKeepTheirDependenciesAndNeverHoldMore) {
  int num_changed = 0;
  int num_lower = 0;
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    const OrderProblem problem = random_problem(seed);
    const Order given = as_given(problem);
    const Order order = order_of(problem);
    places_in(order, problem);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
    ASSERT_LE(peak(problem, order), peak(problem, given)) << "seed " << seed;
    const auto area = [&](const Order& steps) {
      const std::vector<std::int64_t> bytes = bytes_in_use(problem, steps);
      return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
    };
    num_changed += order != given ? 1 : 0;
    num_lower += area(order) < area(given) ? 1 : 0;
    ASSERT_EQ(order, order_of(problem)) << "seed " << seed;
  }
  EXPECT_GT(num_changed, 200);
  EXPECT_GT(num_lower, num_changed * 9 / 10);
}

TEST(Order, WhatReadsAValueComesBeforeItsUpdate) {
  // Value 0 is an array, 1 an index; the update makes 2. The step that makes 4 reads 0 and 3.
  const OrderProblem problem{.steps = {{.reads = {0, 1}, .writes = {2}, .updates = {0}},
                                       {.reads = {1}, .writes = {3}},
                                       {.reads = {0, 3}, .writes = {4}},
                                       {.reads = {0, 2}, .writes = {5}},
                                       {.reads = {2, 4}, .writes = {6}}},
                             .bytes = {0, 0, 0, 8, 8, 8, 8}};
  EXPECT_EQ(reads_before_updates(problem), (Order{1, 2, 0, 3, 4}));
}

TEST(Order, ReadsMoveBeforeUpdatesInRandomSteps) {
  int num_moved = 0;
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    OrderProblem problem = random_problem(seed);
    std::minstd_rand random(seed);
    for (OrderProblem::Step& step : problem.steps) {
      if (random() % 4 == 0 && !step.reads.empty()) step.updates = {step.reads[0]};
    }
    const Order order = reads_before_updates(problem);
    places_in(order, problem);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
    num_moved += order != as_given(problem) ? 1 : 0;
  }
  EXPECT_GT(num_moved, 100);
}

/// Values 0 and 1 are weights of the caller, 2 and 3 are gradients of 100 bytes, 4 is a rate, and 5
/// and 6 are updated weights.
OrderProblem updates() {
  return {.steps = {{.reads = {0}, .writes = {2}},
                    {.reads = {1}, .writes = {3}},
                    {.reads = {}, .writes = {4}},
                    {.reads = {0, 2, 4}, .writes = {5}},
                    {.reads = {1, 3, 4}, .writes = {6}}},
          .bytes = {0, 0, 100, 100, 4, 0, 0}};
}

TEST(Order, UpdatesFollowTheirGradientsWithWhatTheyNeed) {
  const OrderProblem problem = updates();
  EXPECT_EQ(order_of(problem), (Order{0, 2, 3, 1, 4}));
  EXPECT_EQ(peak(problem, as_given(problem)), 204);
  EXPECT_EQ(peak(problem, order_of(problem)), 104);
}

TEST(Order, UpdatesStayBehindWhatHasToRunBefore) {
  OrderProblem problem = updates();
  problem.steps[3].after = {1};
  EXPECT_EQ(order_of(problem), (Order{0, 1, 2, 4, 3}));
}

TEST(Order, NothingMovesUpForWhatItWouldHold) {
  OrderProblem problem = updates();
  problem.bytes[5] = 99;
  problem.bytes[6] = 120;
  problem.steps.push_back({.reads = {5, 6}});
  EXPECT_EQ(order_of(problem), as_given(problem));  // the rate takes four bytes
  problem.bytes[5] = 95;
  EXPECT_EQ(order_of(problem), (Order{0, 2, 3, 1, 4, 5}));
}

TEST(Order, NothingMovesUpWhereItWouldRaiseThePeak) {
  OrderProblem problem{.steps = {{.writes = {0}},
                                 {.writes = {1}},
                                 {.reads = {0}, .writes = {2}, .after = {1}},
                                 {.reads = {1}, .scratch = 250},
                                 {.reads = {2}, .after = {3}}},
                       .bytes = {200, 100, 150}};
  EXPECT_EQ(order_of(problem), as_given(problem));  // 500 bytes; 550 if step 3 came after step 1
  problem.steps[3].scratch = 10;
  EXPECT_EQ(order_of(problem), (Order{0, 1, 3, 2, 4}));
}

TEST(Order, LongProgramsTakeTimeInProportion) {
  // Every step reads the first value, and the last step reads all values.
  constexpr std::size_t kSteps = 100000;
  OrderProblem problem{.steps = {{.writes = {0}}}, .bytes = {8}};
  for (std::size_t i = 1; i < kSteps; ++i) {
    problem.steps.push_back({.reads = {0, i - 1}, .writes = {i}});
    problem.bytes.push_back(8);
  }
  problem.steps.push_back({.reads = as_given(problem)});
  EXPECT_EQ(order_of(problem).size(), kSteps + 1);
}

// --- programs ------------------------------------------------------------------------------------

/// For each value, the instruction that writes it.
std::vector<std::size_t> writers(const HostProgram& program) {
  std::vector<std::size_t> writer(program.layouts.size(), 0);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    for (const TileTask& task : program.instructions[i].tasks) {
      for (const TileRef& write : task.writes) writer[write.value] = i;
    }
  }
  return writer;
}

/// The last product before an instruction.
std::size_t product_before(const HostProgram& program, std::size_t instruction) {
  while (program.instructions[--instruction].info.name != "dot_general") {
  }
  return instruction;
}

class OrderOfPrograms : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int kLayers = 6;
  static constexpr std::int64_t kGradient = 64 * 64 * 4;
  const Mesh mesh_ = GetParam() ? make_mesh({{"data", 2}, {"model", 2}}) : Mesh();
  const MlpStep step_{mesh_, 4, 64, 64, kLayers};
  const partition::PartitionOptions options_ =
      GetParam() ? step_.options({"data"}, {none, "model"}, {"model"}) : step_.options({}, {}, {});
  const Function function_ = partition::partition(step_.program.function, options_);
  const CompileOptions compile_{.is_donated = options_.is_storage,
                                .output_alias = options_.output_follows};
};
INSTANTIATE_TEST_SUITE_P(Meshes, OrderOfPrograms, ::testing::Bool());

TEST_P(OrderOfPrograms, UpdatesStandBehindTheirGradientsAndStayInPlace) {
  const HostProgram given = lower(function_);
  const run::Executable plan_given = plan_memory(given, compile_);
  const HostProgram ordered = in_order(lower(function_), plan_given);
  const run::Executable plan_ordered = plan_memory(ordered, compile_);
  const std::vector<std::size_t> writer = writers(ordered);
  for (std::size_t i = 0; i < plan_ordered.outputs.size(); ++i) {
    EXPECT_EQ(plan_ordered.outputs[i].alias, options_.output_follows[i]);
  }
  // Only the last product that reads the old weights, if there is one, is between a gradient and
  // its update.
  std::vector<std::size_t> updates;
  for (std::size_t i = 1; i <= 2 * kLayers; ++i) updates.push_back(writer[function_.outputs[i]]);
  std::sort(updates.begin(), updates.end());
  for (std::size_t i = 1; i < updates.size(); ++i) {
    EXPECT_LT(updates[i - 1], product_before(ordered, updates[i])) << i;
  }
}

TEST_P(OrderOfPrograms, GradientsDoNotPileUp) {
  const run::Executable given = plan_memory(lower(function_), compile_);
  const run::Executable planned = plan(lower(function_), compile_);
  EXPECT_GE(given.arena_bytes, 2 * kLayers * kGradient);
  EXPECT_LE(planned.arena_bytes, 4 * kGradient);
  EXPECT_LT(planned.device_peak_bytes, given.device_peak_bytes);
  EXPECT_EQ(planned.tasks.size(), given.tasks.size());
}

}  // namespace
}  // namespace tessera::compile::host
