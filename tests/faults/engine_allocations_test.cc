// Each allocation of an execution fails in turn. The engine must report the error and stay usable.
#include <cstdio>
#include <filesystem>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <sys/resource.h>

#include "run/test_graph.h"
#include "tests/faults/failing_new.h"

namespace tessera::run {
namespace {

using namespace testing;
using tessera::testing::FailingAllocations;

constexpr std::uint32_t kSeed = 20;

/// output = input + 1, computed by a task in two parts and a task that follows it.
Graph increment(std::int32_t step) {
  Graph graph;
  graph.executable.inputs = {{.tile_bytes = {4}}};
  graph.executable.outputs = {{.tile_bytes = {4}}};
  const std::uint32_t middle = graph.arena(0, 8);
  const auto first = graph.task(
      [](Buffers b, int part) { number(b[1] + std::ptrdiff_t{4} * part) = number(b[0]); },
      {graph.input(0), middle}, {}, 2);
  graph.task([step](Buffers b, int) { number(b[1]) = number(b[0] + 4) + step; },
             {middle, graph.output(0)}, {first});
  return graph;
}

Nested nested(const Graph& graph, std::uint32_t input, std::uint32_t output, std::uint32_t arena) {
  Nested result{.executable = std::make_shared<const Executable>(graph.executable), .binding = {}};
  result.binding.arena = arena;
  result.binding.inputs = {{{.even = input, .odd = input}}};
  result.binding.outputs = {{{.even = output, .odd = output}}};
  return result;
}

/// Appends `count` tasks, each of which computes one value, in random order: constants, sums of
/// earlier values, loops and branches. Returns the expected last value.
std::int32_t fill(Graph& graph, int count, std::minstd_rand& random) {
  std::vector<std::int32_t> values;
  const auto place = [&](std::size_t i) {
    return graph.arena(static_cast<std::int64_t>(i) * 64, 64);
  };
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    graph.executable.instructions[i].collectives = {
        {.kind = "all_reduce " + std::to_string(i), .bytes = 4}};
    graph.executable.instructions[i].group = static_cast<int>(i % 3) - 1;
    const auto number_of = static_cast<std::uint32_t>(i);
    if (i == 0 || random() % 4 == 0) {
      const auto value = static_cast<std::int32_t>(random() % 100);
      values.push_back(value);
      graph.task([value](Buffers b, int) { number(b[0]) = value; }, {place(i)}, {}, 1, number_of);
      continue;
    }
    const std::size_t from = random() % i;
    const auto before = static_cast<std::uint32_t>(from);
    if (random() % 2 == 0) {
      values.push_back(values[from] + 7);
      graph.task([](Buffers b, int) { number(b[1]) = number(b[0]) + 7; }, {place(from), place(i)},
                 {before}, 1, number_of);
      continue;
    }
    // The buffers of the loop: the initial value, the carry, the arena.
    const auto length = static_cast<std::int32_t>(random() % 4);
    Control loop{.kind = Control::Kind::scan,
                 .length = length,
                 .begin = {},
                 .condition = {},
                 .bodies = {nested(increment(3), 1, 1, 2)},
                 .end = {}};
    loop.begin = nested(increment(0), 0, 1, 2);
    values.push_back(values[from] + 3 * length);
    const std::uint32_t arena =
        graph.arena((static_cast<std::int64_t>(count) + static_cast<std::int64_t>(i)) * 64, 64);
    const std::uint32_t id = graph.task(std::move(loop), {place(from), place(i), arena}, {before});
    graph.executable.tasks[id].instruction = number_of;
  }
  graph.executable.outputs = {{.tile_bytes = {4}}};
  graph.task([](Buffers b, int) { number(b[1]) = number(b[0]); },
             {place(static_cast<std::size_t>(count) - 1), graph.output(0)},
             {static_cast<std::uint32_t>(count - 1)}, 1, 0);
  return values.back();
}

struct Recording {
  bool has_profile = false;
  bool has_timeline = false;
  bool is_traced = false;
};

void start(const Recording& recording) {
  Engine& engine = Engine::instance();
  engine.reset_collective_counts();
  if (recording.has_profile) engine.start_profile();
  if (recording.has_timeline) engine.start_timeline();
  if (recording.is_traced) engine.start_trace();
}

void stop() {
  Engine::instance().stop_profile();
  Engine::instance().stop_timeline();
  Engine::instance().stop_trace();
}

/// For each n, fails the n-th allocation of a run, then runs again without a failure.
void fail_each_allocation(const Graph& graph, std::int32_t wanted, const Recording& recording) {
  int faults = 0;
  for (std::int64_t n = 0;; ++n) {
    ASSERT_LT(n, 5000);
    Engine::instance().set_num_threads(static_cast<int>(n % 3) + 1);
    start(recording);
    bool has_failed = false;
    try {
      const FailingAllocations failing(n);
      const std::vector<Tiles> outputs = graph.run();
      has_failed = failing.has_failed();
      EXPECT_EQ(number(outputs[0][0]), wanted) << "allocation " << n;
    } catch (const std::bad_alloc&) {
      has_failed = true;
      ++faults;
    }
    EXPECT_EQ(number(graph.run()[0][0]), wanted) << "after allocation " << n;
    stop();
    if (!has_failed) break;
  }
  EXPECT_GT(faults, 20);
}

TEST(EngineFaults, AnAllocationThatFailsIsAFaultOfTheExecution) {
  std::minstd_rand random(kSeed);
  std::printf("seed %u\n", kSeed);
  for (int i = 0; i < 12; ++i) {
    const int count = 3 + static_cast<int>(random() % 12);
    Graph graph;
    graph.executable.instructions.resize(static_cast<std::size_t>(count));
    const std::int32_t wanted = fill(graph, count, random);
    Engine::instance().set_threads_per_group(static_cast<int>(random() % 3));
    fail_each_allocation(graph, wanted,
                         {.has_profile = random() % 2 == 0,
                          .has_timeline = random() % 2 == 0,
                          .is_traced = random() % 2 == 0});
  }
  Engine::instance().set_threads_per_group(0);
}

std::int64_t num_threads_of_process() {
  std::int64_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    count += task.is_directory() ? 1 : 0;
  }
  return count;
}

TEST(EngineFaults, ThreadsThatCannotBeStartedLeaveTheirWorkToOthers) {
  if (kIsPoisoned) GTEST_SKIP() << "a sanitizer needs more address space";
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &old), 0);
  std::minstd_rand random(kSeed);
  Graph graph;
  graph.executable.instructions.resize(9);
  const std::int32_t wanted = fill(graph, 9, random);
  Engine::instance().set_num_threads(1);
  graph.run();  // allocates the arena
  Engine::instance().set_num_threads(64);
  // Leave no address space for the stack of a new thread. Allocations here use memory that the heap
  // already has.
  const rlimit none{.rlim_cur = 1 << 20, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
  std::int32_t found = 0;
  std::string what;
  try {
    found = number(graph.run()[0][0]);
  } catch (const std::exception& error) {
    what = error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_AS, &old), 0);
  EXPECT_EQ(what, "");
  EXPECT_EQ(found, wanted);
  EXPECT_LT(num_threads_of_process(), 64);
  EXPECT_EQ(number(graph.run()[0][0]), wanted);
  EXPECT_GE(num_threads_of_process(), 64);
  Engine::instance().set_num_threads(1);
}

}  // namespace
}  // namespace tessera::run
