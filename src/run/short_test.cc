// Executables that are too short to share: the calling thread runs all their tasks, in order.
#include <atomic>
#include <cfenv>
#include <cmath>
#include <gtest/gtest.h>
#include <stdexcept>
#include <thread>

#include <tessera/error.h>

#include "run/test_graph.h"

namespace tessera::run {
namespace {

using namespace testing;

class ShortTest : public ::testing::Test {
 protected:
  void SetUp() override { Engine::instance().set_num_threads(4); }
};

/// Adds up the parts of its task when they are joined.
class JoiningKernel final : public Kernel {
 public:
  int num_parts() const override { return 3; }
  void run(Buffers buffers, int part) const override { number(buffers[0]) += part + 1; }
  bool joins_parts() const override { return true; }
  void join_parts(Buffers buffers) const override { number(buffers[1]) = 10 * number(buffers[0]); }
};

TEST_F(ShortTest, TasksReadWhatThoseBeforeHaveWritten) {
  Graph graph;
  graph.executable.is_short = true;
  graph.executable.inputs = {{.tile_bytes = {4, 4}}};
  graph.executable.outputs = {{.tile_bytes = {4}}, {.tile_bytes = {8}}};
  const std::uint32_t held = graph.arena(64, 4);
  const std::uint32_t result = graph.output(1, 0, 4);
  const auto caller = std::this_thread::get_id();
  int num_elsewhere = 0;
  const std::uint32_t first = graph.task(
      [&](Buffers buffers, int) {
        num_elsewhere += std::this_thread::get_id() == caller ? 0 : 1;
        number(buffers[1]) = 5 * number(buffers[0]);
      },
      {graph.input(0, 1), held});
  const std::uint32_t second = graph.task(Body(), {held, graph.output(0)}, {first});
  graph.executable.tasks[second].kernel = std::make_shared<JoiningKernel>();
  graph.task(
      [&](Buffers buffers, int part) {
        if (part == 0) number(buffers[1]) = 0;
        number(buffers[1]) += number(buffers[0]);
      },
      {graph.output(0), result}, {second}, 2);
  for (int times = 1; times <= 3; ++times) {
    const std::vector<Tiles> outputs = graph.run({{number_buffer(-1), number_buffer(times)}});
    EXPECT_EQ(number(outputs[0][0]), 10 * (5 * times + 6));
    EXPECT_EQ(number(outputs[1][0]->data() + 4), 2 * 10 * (5 * times + 6));
  }
  EXPECT_EQ(num_elsewhere, 0);
}

TEST_F(ShortTest, DonatedBuffersAreOverwrittenAfterTheStart) {
  Graph graph;
  graph.executable.is_short = true;
  graph.executable.inputs = {{.tile_bytes = {4}, .is_donated = true}};
  graph.executable.outputs = {{.tile_bytes = {4}, .alias = 0}};
  bool has_begun = false;
  graph.task(
      [&](Buffers buffers, int) {
        EXPECT_TRUE(has_begun);
        number(buffers[0]) += 1;
      },
      {graph.output(0)});
  std::vector<Tiles> inputs = {{number_buffer(4)}};
  const Buffer* const given = inputs[0][0].get();
  const std::vector<Tiles> outputs =
      Engine::instance().execute(graph.executable, inputs, [&] { has_begun = true; });
  EXPECT_EQ(outputs[0][0].get(), given);
  EXPECT_EQ(number(outputs[0][0]), 5);
}

TEST_F(ShortTest, AFaultEndsTheExecutionOnly) {
  Graph graph;
  graph.executable.is_short = true;
  int num_runs = 0;
  const std::uint32_t first =
      graph.task([](Buffers, int) { throw RuntimeFault("this task fails"); });
  graph.task([&](Buffers, int) { ++num_runs; }, {}, {first});
  EXPECT_THROW(graph.run(), RuntimeFault);
  EXPECT_EQ(num_runs, 0);
  Graph next;
  next.executable.is_short = true;
  next.task([&](Buffers, int) { ++num_runs; });
  next.run();
  EXPECT_EQ(num_runs, 1);
  Engine::instance().set_num_threads(2);  // waits until nothing runs
}

TEST_F(ShortTest, RoundsToNearestAndRestoresTheModeOfTheCaller) {
  Graph graph;
  graph.executable.is_short = true;
  volatile double third = 0;
  graph.task([&](Buffers, int) {
    const volatile double one = 1, three = 3;
    third = one / three;
  });
  const double wanted = 1.0 / 3;
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  graph.run();
  const int mode = std::fegetround();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(mode, FE_UPWARD);
  EXPECT_EQ(third, wanted);
}

TEST_F(ShortTest, IsMeasuredLikeOthers) {
  Graph graph;
  graph.executable.is_short = true;
  graph.executable.instructions = {
      {.name = "sum", .span = {}, .collectives = {{"all_reduce", 8, 12}}},
      {.name = "nothing", .span = {}, .collectives = {{"all_gather", 1, 1}}}};
  graph.task([](Buffers, int) {}, {}, {}, 2, 0);
  graph.task([](Buffers, int) {}, {}, {}, 1, 0);
  graph.task([](Buffers, int) {}, {}, {}, 0, 1);
  Engine& engine = Engine::instance();
  for (const bool is_profiled : {false, true}) {
    engine.reset_collective_counts();
    if (is_profiled) engine.start_profile();
    graph.run();
    const CollectiveCounts counts = engine.collective_counts();
    ASSERT_EQ(counts.size(), 1U) << is_profiled;
    EXPECT_EQ(counts.at("all_reduce").count, 1);
    EXPECT_EQ(counts.at("all_reduce").wire_bytes, 12);
  }
  const std::vector<RegionTime> times = engine.stop_profile();
  ASSERT_EQ(times.size(), 1U);
  EXPECT_EQ(times[0].name, "sum");
  EXPECT_EQ(times[0].count, 1);
  engine.reset_collective_counts();
}

TEST_F(ShortTest, ManyCallersAtOnce) {
  std::atomic<int> num_wrong = 0;
  std::vector<std::thread> threads;
  for (int caller = 0; caller < 8; ++caller) {
    threads.emplace_back([&num_wrong, caller] {
      Graph graph;
      graph.executable.is_short = caller % 2 == 0;
      graph.executable.inputs = {{.tile_bytes = {4}}};
      graph.executable.outputs = {{.tile_bytes = {4}}};
      const std::uint32_t held = graph.arena(0, 4);
      const std::uint32_t first =
          graph.task([](Buffers buffers, int) { number(buffers[1]) = number(buffers[0]) + 1; },
                     {graph.input(0), held});
      graph.task([](Buffers buffers, int) { number(buffers[1]) = 2 * number(buffers[0]); },
                 {held, graph.output(0)}, {first});
      for (int i = 0; i < 500; ++i) {
        const int found = number(graph.run({{number_buffer(i)}})[0][0]);
        num_wrong += found == 2 * (i + 1) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0);
}

}  // namespace
}  // namespace tessera::run
