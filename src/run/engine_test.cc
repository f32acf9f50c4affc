#include "run/engine.h"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include <tessera/error.h>

#include "run/machine/cores.h"
#include "run/test_graph.h"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace tessera::run {
namespace {

using namespace testing;

/// Every test runs with 1 to 4 threads; 4 threads are bound to two nodes.
class EngineTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() == 4) Engine::instance().set_nodes(two_nodes());
    Engine::instance().set_num_threads(GetParam());
  }
  void TearDown() override { Engine::instance().set_nodes(std::nullopt); }
  /// The number of threads that compute at the same time. The engine wakes no more than there are
  /// cores.
  static int num_at_once() { return std::min(GetParam(), usable_cores()); }
};
INSTANTIATE_TEST_SUITE_P(Threads, EngineTest, ::testing::Values(1, 2, 3, 4));

/// Whether the other threads arrive in time.
bool meet(std::atomic<int>& arrived, int wanted) {
  arrived.fetch_add(1);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (arrived.load() < wanted) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

// --- order ---------------------------------------------------------------------------------------

TEST_P(EngineTest, TasksWaitForAllPartsOfTheirPredecessors) {
  std::minstd_rand random(5);
  constexpr std::uint32_t kTasks = 120;
  std::vector<std::atomic<int>> parts_ended(kTasks);
  std::vector<int> parts(kTasks);
  std::atomic<int> num_early = 0;
  Graph graph;
  for (std::uint32_t id = 0; id < kTasks; ++id) {
    std::set<std::uint32_t> after;
    for (std::uint32_t i = 0; id > 0 && i < random() % 4; ++i)
      after.insert(static_cast<std::uint32_t>(random() % id));
    parts[id] = static_cast<int>(random() % 5) + 1;
    const std::vector<std::uint32_t> before(after.begin(), after.end());
    auto body = [&, id, before](Buffers, int) {
      for (std::uint32_t other : before) num_early += parts_ended[other] != parts[other] ? 1 : 0;
      parts_ended[id] += 1;
    };
    graph.task(body, {}, before, parts[id]);
  }
  for (int repeat = 0; repeat < 20; ++repeat) {
    for (auto& ended : parts_ended) ended = 0;
    graph.run();
    EXPECT_EQ(num_early, 0);
    for (std::uint32_t id = 0; id < kTasks; ++id) EXPECT_EQ(parts_ended[id], parts[id]);
  }
}

TEST_P(EngineTest, EveryPartRunsOnceAndThreadsShareThem) {
  EXPECT_EQ(Engine::instance().num_threads(), GetParam());
  const int threads = num_at_once();
  std::atomic<int> arrived = 0;
  std::atomic<int> num_alone = 0;
  std::vector<std::atomic<int>> runs(37);
  Graph graph;
  graph.task(
      [&](Buffers, int part) {
        runs[static_cast<std::size_t>(part)] += 1;
        if (part < threads && !meet(arrived, threads)) num_alone += 1;
      },
      {}, {}, 37);
  graph.run();
  EXPECT_EQ(num_alone, 0);
  for (const auto& count : runs) EXPECT_EQ(count, 1);
}

TEST_P(EngineTest, NoTasksGiveOutputsAtOnce) {
  Graph graph;
  graph.executable.outputs = {{.tile_bytes = {12, 0}}};
  const std::vector<Tiles> outputs = graph.run();
  ASSERT_EQ(outputs.size(), 1U);
  ASSERT_EQ(outputs[0].size(), 2U);
  EXPECT_EQ(outputs[0][0]->size(), 12);
  EXPECT_EQ(outputs[0][1]->size(), 0);
}

/// Counts the parts that have run, and checks that they are joined after all of them.
class JoiningKernel final : public Kernel {
 public:
  explicit JoiningKernel(int parts) : parts_(parts) {}
  int num_parts() const override { return parts_; }
  void run(Buffers /*buffers*/, int /*part*/) const override {
    std::this_thread::yield();
    ended += 1;
  }
  bool joins_parts() const override { return true; }
  void join_parts(Buffers buffers) const override {
    if (ended != parts_) throw std::logic_error("joined too early");
    number(buffers[0]) += 1;
    is_joined = true;
  }
  mutable std::atomic<int> ended = 0;
  mutable std::atomic<bool> is_joined = false;

 private:
  int parts_;
};

TEST_P(EngineTest, PartsAreJoinedOnceAfterTheLastOfThem) {
  for (int parts : {1, 2, 3, 16}) {
    const auto kernel = std::make_shared<JoiningKernel>(parts);
    Graph graph;
    graph.executable.outputs = {{.tile_bytes = {4}}, {.tile_bytes = {4}}};
    graph.task([](Buffers b, int) { number(b[0]) = 40; }, {graph.output(0)});
    const std::uint32_t id = graph.task([](Buffers, int) {}, {graph.output(0)}, {0}, parts);
    graph.executable.tasks[id].kernel = kernel;
    graph.task([&](Buffers b, int) { number(b[0]) = kernel->is_joined ? 1 : 0; }, {graph.output(1)},
               {id});
    const std::vector<Tiles> outputs = graph.run();
    EXPECT_EQ(number(outputs[0][0]), 41);
    EXPECT_EQ(number(outputs[1][0]), 1) << "a successor did not wait";
    // The kernel still has the count of the first run, so joining throws.
    EXPECT_THROW(graph.run(), std::logic_error);
  }
}

// --- places --------------------------------------------------------------------------------------

TEST_P(EngineTest, PlacesAreTilesOfPortsAndTheArena) {
  Graph graph;
  graph.executable.inputs = {{.tile_bytes = {4}}, {.tile_bytes = {4, 8}}};
  graph.executable.outputs = {{.tile_bytes = {4}}, {.tile_bytes = {4, 12}}};
  auto add = [](Buffers b, int) { number(b[2]) = number(b[0]) + number(b[1]); };
  const std::uint32_t middle = graph.arena(64, 4);
  const std::uint32_t first = graph.task(add, {graph.input(0), graph.input(1, 1, 4), middle});
  graph.task(add, {middle, graph.input(1, 0), graph.output(1, 1, 8)}, {first});
  graph.task(add, {middle, middle, graph.output(0)}, {first});
  auto pair = std::make_shared<Buffer>(8);
  number(pair->data() + 4) = 200;
  const BufferPtr one = number_buffer(1);
  const std::vector<Tiles> outputs = graph.run({{one}, {number_buffer(30), pair}});
  EXPECT_EQ(number(outputs[1][1]->data() + 8), 231);
  EXPECT_EQ(number(outputs[0][0]), 402);
  EXPECT_EQ(number(one), 1);
}

TEST_P(EngineTest, DeadRangesArePoisonedWhenTheirLastUserHasEnded) {
  Graph graph;
  graph.executable.outputs = {{.tile_bytes = {4, 4, 4}}};
  const std::uint32_t tile = graph.arena(64, 4);
  const std::uint32_t other = graph.arena(128, 4);
  auto copy = [](Buffers b, int) { number(b[1]) = number(b[0]); };
  auto write = [](Buffers b, int) { number(b[0]) = number(b[1]) = 7; };
  const std::uint32_t writer = graph.task(write, {tile, other});
  const std::uint32_t first = graph.task(copy, {tile, graph.output(0, 0)}, {writer});
  const std::uint32_t last = graph.task(copy, {tile, graph.output(0, 1)}, {first});
  // This task is not registered as a user of the range, so the range is dead when the task reads
  // it.
  auto add = [](Buffers b, int) { number(b[2]) = number(b[0]) + number(b[1]); };
  graph.task(add, {tile, other, graph.output(0, 2)}, {last});
  graph.executable.dead_ranges = {{.offset = 64, .bytes = 64, .users = {writer, first, last}}};
  const Tiles tiles = graph.run().front();
  EXPECT_EQ(number(tiles[0]), 7);
  EXPECT_EQ(number(tiles[1]), 7);
  EXPECT_EQ(number(tiles[2]), 7 + -1);
}

/// out = in + 1 in the buffers of the donated input.
Graph increment() {
  Graph graph;
  graph.executable.inputs = {{.tile_bytes = {4}, .is_donated = true}};
  graph.executable.outputs = {{.tile_bytes = {4}, .alias = 0}};
  graph.task([](Buffers b, int) { number(b[1]) = number(b[0]) + 1; },
             {graph.input(0), graph.output(0)});
  return graph;
}

TEST_P(EngineTest, DonatedBuffersBecomeOutputs) {
  Tiles tiles = {number_buffer(6)};
  const std::byte* memory = tiles[0]->data();
  std::vector<Tiles> inputs;
  inputs.push_back(std::move(tiles));
  const std::vector<Tiles> outputs = increment().run(std::move(inputs));
  EXPECT_EQ(outputs[0][0]->data(), memory);
  EXPECT_EQ(number(outputs[0][0]), 7);
  EXPECT_EQ(outputs[0][0].use_count(), 1);
}

TEST_P(EngineTest, DonatedBuffersThatSomeoneHoldsAreCopied) {
  const BufferPtr held = number_buffer(6);
  const std::vector<Tiles> outputs = increment().run({{held}});
  EXPECT_NE(outputs[0][0], held);
  EXPECT_EQ(number(outputs[0][0]), 7);
  EXPECT_EQ(number(held), 6);
}

TEST_P(EngineTest, OneBufferInTwoInputsIsNotWrittenUnderTheOther) {
  Graph graph = increment();
  graph.executable.inputs.push_back({.tile_bytes = {4}});
  graph.executable.outputs.push_back({.tile_bytes = {4}});
  // Reads the other input after the donated one has been overwritten.
  graph.task([](Buffers b, int) { number(b[1]) = number(b[0]); }, {graph.input(1), graph.output(1)},
             {0});
  BufferPtr buffer = number_buffer(6);
  std::vector<Tiles> inputs = {{buffer}, {buffer}};
  buffer.reset();
  const std::vector<Tiles> outputs = graph.run(std::move(inputs));
  EXPECT_EQ(number(outputs[0][0]), 7);
  EXPECT_EQ(number(outputs[1][0]), 6);
}

TEST_P(EngineTest, InputsMustFitTheirPorts) {
  const Graph graph = increment();
  EXPECT_THROW(graph.run({}), InternalError);
  EXPECT_THROW(graph.run({{}}), InternalError);
  EXPECT_THROW(graph.run({{std::make_shared<Buffer>(8)}}), InternalError);
  EXPECT_EQ(number(graph.run({{number_buffer(1)}})[0][0]), 2);
}

// --- exceptions ----------------------------------------------------------------------------------

TEST_P(EngineTest, ExceptionsArePassedOnAndTheEngineGoesOn) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::atomic<int> num_after = 0;
    std::atomic<int> num_inside = 0;
    Graph graph;
    const std::uint32_t bad = graph.task(
        [&](Buffers, int part) {
          num_inside += 1;
          std::this_thread::yield();
          num_inside -= 1;
          if (part % 3 == 1) throw std::out_of_range("part of " + std::to_string(repeat));
        },
        {}, {}, 9);
    graph.task([&](Buffers, int) { num_after += 1; }, {}, {bad}, 3);
    try {
      graph.run();
      FAIL() << "nothing was thrown";
    } catch (const std::out_of_range& error) {
      EXPECT_EQ(error.what(), "part of " + std::to_string(repeat));
    }
    EXPECT_EQ(num_inside, 0) << "a kernel still ran";
    EXPECT_EQ(num_after, 0);
    EXPECT_EQ(number(increment().run({{number_buffer(repeat)}})[0][0]), repeat + 1);
  }
}

// --- tasks that communicate ----------------------------------------------------------------------

/// A task that communicates and ends when `wanted` others have arrived.
std::uint32_t meeting(Graph& graph, std::atomic<int>& arrived, int wanted,
                      std::atomic<int>& num_alone, const std::vector<std::uint32_t>& after = {}) {
  const std::uint32_t id = graph.task(
      [&arrived, &num_alone, wanted](Buffers, int) {
        if (!meet(arrived, wanted + 1)) num_alone += 1;
        arrived = 0;
      },
      {}, after);
  graph.executable.tasks[id].communicates = true;
  graph.executable.communicates = true;
  return id;
}

TEST_P(EngineTest, TasksGoOnWhileOneCommunicates) {
  std::atomic<int> arrived = 0;
  std::atomic<int> num_alone = 0;
  Graph graph;
  const auto compute = [&](Buffers, int) { arrived += 1; };
  // Two exchanges, one after the other. Each waits for all parts that can run meanwhile.
  const std::uint32_t first = meeting(graph, arrived, 9, num_alone);
  graph.task(compute, {}, {}, 8);
  graph.task(compute);
  const std::uint32_t second = meeting(graph, arrived, 3, num_alone, {first});
  graph.task(compute, {}, {first}, 3);
  graph.task([](Buffers, int) {}, {}, {second}, 3);
  for (int repeat = 0; repeat < 20; ++repeat) graph.run();
  EXPECT_EQ(num_alone, 0);
}

TEST_P(EngineTest, OneTaskCommunicatesAtATime) {
  std::minstd_rand random(7);
  for (int repeat = 0; repeat < 30; ++repeat) {
    Graph graph;
    std::atomic<int> num_at_once = 0;
    std::atomic<int> num_wrong = 0;
    std::atomic<int> num_ended = 0;
    constexpr std::uint32_t kTasks = 60;
    for (std::uint32_t id = 0; id < kTasks; ++id) {
      const bool communicates = random() % 3 == 0;
      std::set<std::uint32_t> after;
      for (std::uint32_t i = 0; id > 0 && i < random() % 3; ++i)
        after.insert(static_cast<std::uint32_t>(random() % id));
      graph.task(
          [&, communicates](Buffers, int) {
            num_ended += 1;
            if (!communicates) return;
            if (num_at_once.fetch_add(1) != 0) num_wrong += 1;
            std::this_thread::yield();
            num_at_once -= 1;
          },
          {}, {after.begin(), after.end()});
      graph.executable.tasks[id].communicates = communicates;
    }
    graph.executable.communicates = true;
    graph.run();
    EXPECT_EQ(num_wrong, 0);
    EXPECT_EQ(num_ended, static_cast<int>(kTasks));
  }
}

TEST_P(EngineTest, AFaultBesideCommunicationEndsTheRun) {
  for (const bool communication_fails : {false, true}) {
    std::atomic<bool> has_begun = false;
    std::atomic<bool> has_ended = false;
    Graph graph;
    const std::uint32_t id = graph.task([&](Buffers, int) {
      has_begun = true;
      if (communication_fails) throw std::out_of_range("planned");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      has_ended = true;
    });
    graph.executable.tasks[id].communicates = true;
    graph.executable.communicates = true;
    graph.task([&](Buffers, int) {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!has_begun && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
      if (!communication_fails) throw std::out_of_range("planned");
    });
    std::atomic<int> num_after = 0;
    graph.task([&](Buffers, int) { num_after += 1; }, {}, {0, 1});
    EXPECT_THROW(graph.run(), std::out_of_range);
    EXPECT_EQ(has_ended, !communication_fails) << "the buffers must outlive the exchange";
    EXPECT_EQ(num_after, 0);
    EXPECT_EQ(number(increment().run({{number_buffer(1)}})[0][0]), 2);
  }
}

// --- counts --------------------------------------------------------------------------------------

TEST_P(EngineTest, CollectivesAreCountedOncePerExecution) {
  Graph graph;
  graph.executable.instructions = {
      {.name = "all_reduce", .span = {}, .collectives = {{"all_reduce", 100, 150}}},
      {.name = "both",
       .span = {},
       .collectives = {{"all_reduce", 10, 15}, {"all_gather", 1000, 750}}},
      {.name = "without tasks", .span = {}, .collectives = {{"all_to_all", 1, 1}}}};
  auto nothing = [](Buffers, int) {};
  for (int i = 0; i < 8; ++i) graph.task(nothing, {}, {}, 3, i % 2 == 0 ? 0 : 1);
  Engine& engine = Engine::instance();
  engine.reset_collective_counts();
  for (int i = 0; i < 3; ++i) graph.run();
  const CollectiveCounts counts = engine.collective_counts();
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts.at("all_reduce").count, 6);
  EXPECT_EQ(counts.at("all_reduce").bytes, 330);
  EXPECT_EQ(counts.at("all_reduce").wire_bytes, 495);
  EXPECT_EQ(counts.at("all_gather").count, 3);
  EXPECT_EQ(counts.at("all_gather").bytes, 3000);
  EXPECT_EQ(counts.at("all_gather").wire_bytes, 2250);
  engine.reset_collective_counts();
  EXPECT_TRUE(engine.collective_counts().empty());
}

// --- float modes ---------------------------------------------------------------------------------

#ifdef __SSE2__
constexpr unsigned kFlushToZero = 0x8040;  // of results and of operands
void set_flush_to_zero(bool is_on) {
  _mm_setcsr(is_on ? _mm_getcsr() | kFlushToZero : _mm_getcsr() & ~kFlushToZero);
}
bool is_flush_to_zero() { return (_mm_getcsr() & kFlushToZero) == kFlushToZero; }
#else
void set_flush_to_zero(bool /*is_on*/) {}
bool is_flush_to_zero() { return true; }
#endif

/// Whether this thread rounds to nearest and keeps denormals.
bool has_default_mode() {
  volatile float tiny = 1e-38F;
  volatile float half = 0.5F;
  volatile float one = 1.0F;
  volatile float small = 1e-10F;
  const float denormal = tiny * half;
  const float up = one + small;
  const float down = -one - small;
  return denormal > 0.0F && up == 1.0F && down == -1.0F && std::fegetround() == FE_TONEAREST;
}

/// Sets modes that kernels must not run in, and resets them at the end of the scope.
struct StrangeMode {
  StrangeMode() {
    std::fesetround(FE_UPWARD);
    set_flush_to_zero(true);
  }
  ~StrangeMode() {
    std::fesetround(FE_TONEAREST);
    set_flush_to_zero(false);
  }
  static bool is_set() { return is_flush_to_zero() && std::fegetround() == FE_UPWARD; }
};

TEST_P(EngineTest, KernelsRunInTheDefaultFloatModeAndTheCallersIsRestored) {
  const int threads = num_at_once();
  std::atomic<int> arrived = 0;
  std::atomic<int> num_wrong = 0;
  Graph graph;
  graph.task(
      [&](Buffers, int) {
        if (!meet(arrived, threads) || !has_default_mode()) num_wrong += 1;
      },
      {}, {}, threads);
  Graph faulty;
  faulty.task([](Buffers, int) { throw std::runtime_error("planned"); });
  ASSERT_TRUE(has_default_mode());
  bool is_kept = false;
  bool is_kept_after_fault = false;
  {
    const StrangeMode mode;  // the threads start within this scope
    graph.run();
    is_kept = StrangeMode::is_set();
    EXPECT_THROW(faulty.run(), std::runtime_error);
    is_kept_after_fault = StrangeMode::is_set();
  }
  EXPECT_EQ(num_wrong, 0);
  EXPECT_TRUE(is_kept);
  EXPECT_TRUE(is_kept_after_fault);
}

// --- concurrency ---------------------------------------------------------------------------------

/// A sequence of tasks through the arena that adds 1 `length` times to each element.
Graph chain(int length, std::int64_t elements) {
  Graph graph;
  const std::int64_t bytes = elements * 4;
  graph.executable.inputs = {{.tile_bytes = {bytes}}};
  graph.executable.outputs = {{.tile_bytes = {bytes}}};
  constexpr int kParts = 4;
  auto add_one = [elements](Buffers b, int part) {
    for (std::int64_t i = elements * part / kParts; i < elements * (part + 1) / kParts; ++i) {
      number(b[1] + 4 * i) = number(b[0] + 4 * i) + 1;
    }
  };
  const std::uint32_t halves[] = {graph.arena(0, bytes), graph.arena(bytes, bytes)};
  std::uint32_t from = graph.input(0);
  std::vector<std::uint32_t> after;
  for (int i = 0; i < length; ++i) {
    const std::uint32_t to = i + 1 == length ? graph.output(0) : halves[i % 2];
    after = {graph.task(add_one, {from, to}, after, kParts)};
    from = to;
  }
  return graph;
}

TEST_P(EngineTest, ExecutionsOfSeveralThreadsDoNotMix) {
  std::atomic<int> num_wrong = 0;
  auto work = [&](int length, std::int32_t elements) {
    const Graph graph = chain(length, elements);
    auto input = std::make_shared<Buffer>(elements * 4);
    for (std::int32_t repeat = 0; repeat < 60; ++repeat) {
      for (std::int32_t i = 0; i < elements; ++i) number(input->data() + 4 * i) = i * repeat;
      const std::vector<Tiles> outputs = graph.run({{input}});
      for (std::int32_t i = 0; i < elements; ++i) {
        num_wrong += number(outputs[0][0]->data() + 4 * i) != i * repeat + length ? 1 : 0;
      }
    }
  };
  std::thread other(work, 7, 3000);
  work(12, 100);
  other.join();
  EXPECT_EQ(num_wrong, 0);
}

TEST(Engine, ThreadsChangeBetweenExecutions) {
  const Graph graph = chain(5, 64);
  for (int threads : {1, 4, 2, 3, 1}) {
    Engine::instance().set_num_threads(threads);
    auto input = std::make_shared<Buffer>(256);
    std::memset(input->data(), 0, 256);
    const std::vector<Tiles> outputs = graph.run({{input}});
    for (int i = 0; i < 64; ++i) EXPECT_EQ(number(outputs[0][0]->data() + 4 * i), 5);
  }
  EXPECT_THROW(Engine::instance().set_num_threads(0), InternalError);
}

TEST(Buffer, IsAlignedAndMayBeEmpty) {
  for (std::int64_t bytes : {0, 1, 63, 64, 65}) {
    Buffer buffer(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
  }
}

#ifndef __SANITIZE_ADDRESS__  // with it, no freed memory is kept
TEST(Buffers, TakeTheMemoryOfFreedOnesOfTheirSize) {
  constexpr std::int64_t kBytes = 5 << 20;
  auto freed = std::make_unique<Buffer>(kBytes);
  const std::byte* const memory = freed->data();
  freed.reset();
  Buffer other(kBytes + 64);
  EXPECT_NE(other.data(), memory);
  Buffer same(kBytes);
  EXPECT_EQ(same.data(), memory);
  Buffer second(kBytes);
  EXPECT_NE(second.data(), memory);
}

TEST(Buffers, KeepLittleMemoryThatIsFree) {
  constexpr std::int64_t kBytes = 20 << 20;
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::set<const std::byte*> before, after;
  for (int i = 0; i < 5; ++i) {
    buffers.push_back(std::make_unique<Buffer>(kBytes + i * 64));
    before.insert(buffers.back()->data());
  }
  buffers.clear();  // the last three fit in the kept memory
  for (int i = 0; i < 5; ++i) {
    buffers.push_back(std::make_unique<Buffer>(kBytes + i * 64));
    if (i >= 2) after.insert(buffers.back()->data());
  }
  for (const std::byte* memory : after) EXPECT_TRUE(before.contains(memory));
}
#endif

}  // namespace
}  // namespace tessera::run
