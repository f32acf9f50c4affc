// Random programs on any number of threads: every part runs once per run of its task, after all
// parts of the tasks before it.
#include "run/threads/workers.h"

#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "run/test_graph.h"

namespace tessera::run {
namespace {

using namespace testing;

/// What the parts of one task have done, over all of its runs.
struct Progress {
  int num_parts;
  std::atomic<int> begun = 0;
  std::atomic<int> ended = 0;
};

struct RandomProgram {
  std::mt19937 random;
  std::vector<std::pair<std::shared_ptr<Progress>, int>> expected;  // and how often it runs
  std::shared_ptr<std::atomic<int>> num_faults = std::make_shared<std::atomic<int>>(0);

  explicit RandomProgram(unsigned seed) : random(seed) {}
  int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random); }

  /// Takes between no time and some microseconds, or sleeps, so that other threads fall asleep too.
  static void take_time(int kind) {
    if (kind == 0) return std::this_thread::sleep_for(std::chrono::microseconds(120));
    const auto end = Clock::now() + std::chrono::nanoseconds(kind * 50);
    while (kind > 10 && Clock::now() < end) continue;
  }

  void add_kernel(Graph& graph, const std::vector<std::uint32_t>& after,
                  std::vector<std::shared_ptr<Progress>>& tasks, int num_runs) {
    const int num_parts = below(3) > 0 ? 1 : below(7);
    const auto own = std::make_shared<Progress>(num_parts);
    std::vector<std::shared_ptr<Progress>> before;
    for (const std::uint32_t task : after) {
      if (tasks[task] != nullptr) before.push_back(tasks[task]);
    }
    const int kind = below(40);
    auto body = [own, before, kind, faults = num_faults](Buffers, int) {
      const int run = own->begun.fetch_add(1) / own->num_parts + 1;
      for (const auto& other : before) {
        if (other->ended != run * other->num_parts) *faults += 1;
      }
      take_time(kind);
      own->ended += 1;
    };
    graph.task(body, {}, after, num_parts);
    tasks.push_back(own);
    expected.emplace_back(own, num_runs);
  }

  void add_loop(Graph& graph, const std::vector<std::uint32_t>& after,
                std::vector<std::shared_ptr<Progress>>& tasks, int num_runs, int depth) {
    Control control{.kind = below(2) > 0 ? Control::Kind::scan : Control::Kind::cond,
                    .begin = {},
                    .condition = {},
                    .bodies = {},
                    .end = {}};
    const bool is_scan = control.kind == Control::Kind::scan;
    // Sometimes more rounds than a thread runs without looking for other tasks.
    control.length = depth == 2 && below(8) == 0 ? 150 : below(6);
    const int times = is_scan ? static_cast<int>(control.length) : 1;
    const Graph body = make(num_runs * times, depth + 1);
    control.bodies = {
        {.executable = std::make_shared<const Executable>(body.executable), .binding = {}}};
    // Loops that run at the same time have separate memory, which sanitizer builds fill.
    const std::int64_t bytes = 64 + body.executable.arena_bytes;
    graph.task(std::move(control), {graph.arena(graph.executable.arena_bytes, bytes)}, after);
    tasks.push_back(nullptr);
  }

  /// A graph that runs `num_runs` times.
  Graph make(int num_runs, int depth) {
    Graph graph;
    std::vector<std::shared_ptr<Progress>> tasks;  // nullptr: a loop
    const int count = below(depth == 0 ? 40 : 8);
    std::uint32_t last_exchange = ~std::uint32_t{0};
    for (int i = 0; i < count; ++i) {
      std::vector<std::uint32_t> after;
      for (int j = 0; j < i; ++j) {
        if (below(4) == 0) after.push_back(static_cast<std::uint32_t>(j));
      }
      if (depth < 3 && below(6) == 0) {
        add_loop(graph, after, tasks, num_runs, depth);
        continue;
      }
      const bool communicates = depth == 0 && below(8) == 0;
      const auto id = static_cast<std::uint32_t>(i);
      if (communicates && last_exchange < id) after.push_back(last_exchange);
      std::sort(after.begin(), after.end());
      after.erase(std::unique(after.begin(), after.end()), after.end());
      add_kernel(graph, after, tasks, num_runs);
      graph.executable.tasks[id].level = below(20);
      graph.executable.tasks[id].communicates = communicates;
      graph.executable.communicates |= communicates;
      if (communicates) last_exchange = id;
    }
    graph.executable.is_short_body = depth > 0 && below(2) == 0;
    return graph;
  }

  void check(int times) const {
    EXPECT_EQ(*num_faults, 0);
    for (const auto& [progress, num_runs] : expected) {
      ASSERT_EQ(progress->ended, times * num_runs * progress->num_parts);
      ASSERT_EQ(progress->begun, progress->ended);
    }
  }
};

class WorkersTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { Engine::instance().set_num_threads(GetParam()); }
  void TearDown() override { Engine::instance().set_nodes(std::nullopt); }
};
INSTANTIATE_TEST_SUITE_P(Threads, WorkersTest, ::testing::Values(1, 2, 3, 8));

TEST_P(WorkersTest, RandomProgramsRunEveryPartOnceAndInOrder) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    if (seed == 100) Engine::instance().set_nodes(two_nodes());
    RandomProgram program(seed);
    const Graph graph = program.make(1, 0);
    if (seed % 5 == 0) Engine::instance().start_trace();
    for (int i = 0; i < 3; ++i) graph.run();
    if (seed % 5 == 0) Engine::instance().stop_trace();
    program.check(3);
    if (HasFailure()) return;
  }
}

TEST_P(WorkersTest, RandomProgramsOfSeveralCallersRunEveryPartOnceAndInOrder) {
  for (unsigned round = 0; round < 20; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    std::vector<std::unique_ptr<RandomProgram>> programs;
    std::vector<std::thread> callers;
    for (unsigned i = 0; i < 4; ++i) {
      programs.push_back(std::make_unique<RandomProgram>(1000 + 4 * round + i));
      callers.emplace_back([graph = programs[i]->make(1, 0)] {
        for (int run = 0; run < 4; ++run) graph.run();
      });
    }
    for (std::thread& caller : callers) caller.join();
    for (const auto& program : programs) program->check(4);
    if (HasFailure()) return;
  }
}

TEST_P(WorkersTest, AFaultAnywhereEndsTheRun) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomProgram program(seed);
    Graph graph = program.make(1, 0);
    const auto count = static_cast<int>(graph.executable.tasks.size());
    if (count == 0) continue;
    Task& task = graph.executable.tasks[static_cast<std::size_t>(program.below(count))];
    const int parts = 1 + program.below(5);
    task.control = nullptr;
    task.kernel = std::make_shared<LambdaKernel>(parts, [parts](Buffers, int part) {
      if (part == parts / 2) throw std::runtime_error("planted");
    });
    EXPECT_THROW(graph.run(), std::runtime_error);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tessera::run
