// Tasks of several groups of devices: threads per group, and the timeline.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#include <tessera/error.h>

#include "run/machine/cores.h"
#include "run/test_graph.h"

namespace tessera::run {
namespace {

using namespace testing;

/// Sets the number of threads, and of threads per group, for one test.
class GroupThreads {
 public:
  GroupThreads(int threads, int per_group) {
    Engine::instance().set_num_threads(threads);
    Engine::instance().set_threads_per_group(per_group);
  }
  ~GroupThreads() { Engine::instance().set_threads_per_group(0); }
};

/// A graph whose instruction i belongs to group i.
Graph graph_of_groups(int count) {
  Graph graph;
  graph.executable.instructions.resize(static_cast<std::size_t>(count));
  for (int group = 0; group < count; ++group) {
    Instruction& instruction = graph.executable.instructions[static_cast<std::size_t>(group)];
    instruction.name = "task_" + std::to_string(group);
    instruction.group = group;
    instruction.microbatch = 10 + group;
    instruction.is_task = true;
  }
  return graph;
}

/// Whether all have arrived in time.
bool meet(std::atomic<int>& arrived, int wanted) {
  arrived.fetch_add(1);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (arrived.load() < wanted) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(Groups, RunAtTheSameTimeOnThreadsOfTheirOwn) {
  if (usable_cores() < 2) GTEST_SKIP() << "the engine wakes no more threads than there are cores";
  const GroupThreads threads(2, 1);
  Graph graph = graph_of_groups(2);
  std::atomic<int> arrived = 0;
  std::atomic<int> num_alone = 0;
  for (std::uint32_t group : {0U, 1U}) {
    graph.task([&](Buffers, int) { num_alone += meet(arrived, 2) ? 0 : 1; }, {}, {}, 1, group);
  }
  Engine::instance().start_timeline();
  graph.run({});
  const std::vector<TaskTime> times = Engine::instance().stop_timeline();
  EXPECT_EQ(num_alone, 0);
  ASSERT_EQ(times.size(), 2U);
  // Each starts before the other one ends.
  EXPECT_LE(times[0].start_ns, times[1].end_ns);
  EXPECT_LE(times[1].start_ns, times[0].end_ns);
  EXPECT_NE(times[0].group, times[1].group);
  EXPECT_EQ(times[0].microbatch, 10 + times[0].group);
  EXPECT_EQ(times[0].name, "task_" + std::to_string(times[0].group));
}

TEST(Groups, NeverHaveMoreThreadsThanAllowed) {
  for (int limit : {1, 2}) {
    const GroupThreads threads(4, limit);
    Graph graph = graph_of_groups(2);
    std::vector<std::atomic<int>> running(2);
    std::vector<std::atomic<int>> most(2);
    std::atomic<int> parts_run = 0;
    for (std::uint32_t group : {0U, 1U}) {
      std::vector<std::uint32_t> after;
      for (int i = 0; i < 20; ++i) {
        const auto work = [&, group](Buffers, int) {
          const int now = ++running[group];
          int before = most[group];
          while (now > before && !most[group].compare_exchange_weak(before, now)) {
          }
          std::this_thread::yield();
          ++parts_run;
          --running[group];
        };
        after = {graph.task(work, {}, after, 7, group)};
      }
    }
    graph.run({});
    EXPECT_EQ(parts_run, 2 * 20 * 7);
    EXPECT_LE(most[0], limit);
    EXPECT_LE(most[1], limit);
  }
}

TEST(Groups, WithoutALimitThreadsHelpAnyGroup) {
  const GroupThreads threads(3, 0);
  const int num_at_once = std::min(3, usable_cores());
  Graph graph = graph_of_groups(2);
  std::atomic<int> arrived = 0;
  std::atomic<int> num_alone = 0;
  graph.task([&](Buffers, int) { num_alone += meet(arrived, num_at_once) ? 0 : 1; }, {}, {}, 3, 1);
  graph.run({});
  EXPECT_EQ(num_alone, 0);
}

/// With fewer threads than groups, tasks run in program order.
TEST(Groups, ShareAThreadInTheOrderOfTheProgram) {
  const GroupThreads threads(1, 1);
  Graph graph = graph_of_groups(3);
  std::vector<int> order;
  for (int i : {2, 0, 1, 0, 2}) {
    graph.task([&order, i](Buffers, int) { order.push_back(i); }, {}, {}, 1,
               static_cast<std::uint32_t>(i));
  }
  graph.run({});
  EXPECT_EQ(order, (std::vector<int>{2, 0, 1, 0, 2}));
}

TEST(Groups, AFaultEndsTheRun) {
  const GroupThreads threads(2, 1);
  Graph graph = graph_of_groups(2);
  const std::uint32_t first =
      graph.task([](Buffers, int) { throw std::runtime_error("broken"); }, {}, {}, 2, 0);
  graph.task([](Buffers, int) { FAIL() << "it waits for what failed"; }, {}, {first}, 1, 1);
  EXPECT_THROW(graph.run({}), std::runtime_error);
  EXPECT_THROW(Engine::instance().set_threads_per_group(-1), InternalError);
  EXPECT_EQ(Engine::instance().threads_per_group(), 1);
}

}  // namespace
}  // namespace tessera::run
