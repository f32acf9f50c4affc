// Control tasks: loops and branches over executables written by hand.
#include "run/frame.h"

#include <atomic>
#include <gtest/gtest.h>
#include <stdexcept>

#include <tessera/error.h>

#include "run/test_graph.h"

namespace tessera::run {
namespace {

using namespace testing;

class ControlTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { Engine::instance().set_num_threads(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Threads, ControlTest, ::testing::Values(1, 2, 3));

TileBinding buffer(std::uint32_t number, std::int64_t stride = 0) {
  return {.even = number, .odd = number, .stride = stride};
}

/// `graph` with one port per tile binding.
Nested nested(const Graph& graph, std::vector<TileBinding> inputs, std::vector<TileBinding> outputs,
              std::uint32_t arena = 0) {
  Nested result{.executable = std::make_shared<const Executable>(graph.executable), .binding = {}};
  result.binding.arena = arena;
  for (const TileBinding& tile : inputs) result.binding.inputs.push_back({tile});
  for (const TileBinding& tile : outputs) result.binding.outputs.push_back({tile});
  return result;
}

Control control(Control::Kind kind, std::vector<Nested> bodies, std::int64_t length = 0) {
  Control result{.kind = kind, .begin = {}, .condition = {}, .bodies = {}, .end = {}};
  result.length = length;
  result.bodies = std::move(bodies);
  return result;
}

/// An executable over numbers: inputs and outputs of one tile each.
Graph ports(int inputs, int outputs) {
  Graph graph;
  graph.executable.inputs.assign(static_cast<std::size_t>(inputs), {.tile_bytes = {4}});
  graph.executable.outputs.assign(static_cast<std::size_t>(outputs), {.tile_bytes = {4}});
  return graph;
}

/// output = input + 1, in two tasks through the arena.
Graph increment() {
  Graph graph = ports(1, 1);
  const std::uint32_t middle = graph.arena(64, 4);
  const auto first =
      graph.task([](Buffers b, int) { number(b[1]) = number(b[0]); }, {graph.input(0), middle});
  graph.task([](Buffers b, int) { number(b[1]) = number(b[0]) + 1; }, {middle, graph.output(0)},
             {first});
  return graph;
}

TEST_P(ControlTest, TwoBuffersTakeTurns) {
  // Each step writes the buffer that it does not read; after an odd number of steps that is the
  // output.
  for (int length : {1, 3, 7}) {
    Graph graph = ports(1, 1);
    const TileBinding reads{.even = 0, .odd = 1};
    const TileBinding writes{.even = 1, .odd = 0};
    graph.task(control(Control::Kind::scan, {nested(increment(), {reads}, {writes}, 2)}, length),
               {graph.input(0), graph.output(0), graph.arena(0, 128)});
    EXPECT_EQ(number(graph.run({{number_buffer(5)}})[0][0]), 5 + length);
  }
}

TEST_P(ControlTest, SlicesAreFoundInBothDirections) {
  for (bool is_reverse : {false, true}) {
    Graph graph;
    graph.executable.inputs = {{.tile_bytes = {20}}};
    graph.executable.outputs = {{.tile_bytes = {20}}, {.tile_bytes = {4}}};
    Graph body = ports(2, 2);
    // The sum so far, as the carry and as a row of the stacked result.
    body.task(
        [](Buffers b, int) {
          number(b[2]) = number(b[0]) + number(b[1]);
          number(b[3]) = number(b[2]);
        },
        {body.input(0), body.input(1), body.output(0), body.output(1)});
    Control loop = control(Control::Kind::scan,
                           {nested(body, {buffer(2), buffer(0, 4)}, {buffer(2), buffer(1, 4)})}, 5);
    loop.is_reverse = is_reverse;
    const auto zero = graph.task([](Buffers b, int) { number(b[0]) = 0; }, {graph.output(1)});
    graph.task(std::move(loop), {graph.input(0), graph.output(0), graph.output(1)}, {zero});
    auto input = std::make_shared<Buffer>(20);
    for (std::int32_t i = 0; i < 5; ++i) number(input->data() + 4 * i) = 1 << i;
    const std::vector<Tiles> outputs = graph.run({{input}});
    EXPECT_EQ(number(outputs[1][0]), 31);
    for (std::int32_t i = 0; i < 5; ++i) {
      const std::int32_t wanted = is_reverse ? 32 - (1 << i) : (2 << i) - 1;
      EXPECT_EQ(number(outputs[0][0]->data() + 4 * i), wanted) << i;
    }
  }
}

/// Counts `limit` iterations in the output, which starts at 0.
Graph counting(std::int32_t limit, const Graph& round) {
  Graph graph = ports(0, 1);
  Graph test = ports(1, 1);
  test.task([limit](Buffers b, int) { b[1][0] = std::byte{number(b[0]) < limit}; },
            {test.input(0), test.output(0)});
  Control loop = control(Control::Kind::while_loop, {nested(round, {buffer(0)}, {buffer(0)}, 2)});
  loop.condition = nested(test, {buffer(0)}, {buffer(1)});
  loop.decision = 1;
  const auto zero = graph.task([](Buffers b, int) { number(b[0]) = 0; }, {graph.output(0)});
  graph.task(std::move(loop), {graph.output(0), graph.arena(0, 64), graph.arena(64, 128)}, {zero});
  return graph;
}

TEST_P(ControlTest, AWhileRunsUntilItsConditionIsFalse) {
  for (std::int32_t limit : {-1, 0, 1, 2, 100}) {
    EXPECT_EQ(number(counting(limit, increment()).run()[0][0]), std::max(limit, 0));
  }
}

TEST_P(ControlTest, ShortBodiesRunLikeOthers) {
  Graph round = increment();
  round.executable.is_short_body = true;
  for (std::int32_t limit : {0, 1, 63, 64, 65, 1000})
    EXPECT_EQ(number(counting(limit, round).run()[0][0]), limit);
  Graph fails = ports(1, 1);
  int rounds = 0;
  fails.task(
      [&](Buffers b, int) {
        if (++rounds == 100) throw RuntimeFault("this round fails");
        number(b[1]) = number(b[0]) + 1;
      },
      {fails.input(0), fails.output(0)});
  fails.executable.is_short_body = true;
  EXPECT_THROW(counting(1000, fails).run(), RuntimeFault);
  EXPECT_EQ(rounds, 100);
}

TEST_P(ControlTest, LoopsInLoops) {
  // 4 times 3 times 2 steps.
  Graph inner = increment();
  for (int length : {2, 3, 4}) {
    Graph outer = ports(1, 1);
    outer.task(control(Control::Kind::scan, {nested(inner, {buffer(0)}, {buffer(0)}, 1)}, length),
               {outer.output(0), outer.arena(0, inner.executable.arena_bytes)});
    inner = outer;
  }
  Graph graph = ports(1, 1);
  const auto copy = graph.task([](Buffers b, int) { number(b[1]) = number(b[0]); },
                               {graph.input(0), graph.output(0)});
  graph.task(control(Control::Kind::cond, {nested(inner, {buffer(1)}, {buffer(1)}, 2)}),
             {graph.input(0), graph.output(0), graph.arena(0, inner.executable.arena_bytes)},
             {copy});
  EXPECT_EQ(number(graph.run({{number_buffer(7)}})[0][0]), 7 + 24);
}

TEST_P(ControlTest, LoopsNextToEachOther) {
  // The frames of many loops share the threads; none waits for another.
  constexpr std::uint32_t kLoops = 20;
  Graph graph = ports(0, kLoops + 1);
  std::vector<std::uint32_t> loops;
  std::vector<std::uint32_t> places;
  for (std::uint32_t i = 0; i < kLoops; ++i) {
    const std::uint32_t place = graph.output(i);
    const auto start =
        graph.task([i](Buffers b, int) { number(b[0]) = static_cast<std::int32_t>(i); }, {place});
    loops.push_back(graph.task(
        control(Control::Kind::scan, {nested(increment(), {buffer(0)}, {buffer(0)}, 1)}, 30),
        {place, graph.arena(128 * i, 128)}, {start}));
    places.push_back(place);
  }
  places.push_back(graph.output(kLoops));
  graph.task(
      [](Buffers b, int) {
        number(b[kLoops]) = 0;
        for (std::uint32_t i = 0; i < kLoops; ++i) number(b[kLoops]) += number(b[i]);
      },
      places, loops);
  for (int repeat = 0; repeat < 10; ++repeat) {
    EXPECT_EQ(number(graph.run()[kLoops][0]), 190 + 20 * 30);
  }
}

TEST_P(ControlTest, BodiesWithoutWorkEnd) {
  const Graph nothing;
  Graph no_parts;
  no_parts.task([](Buffers, int) { FAIL() << "no part to run"; }, {}, {}, 0);
  for (const Graph& body : {nothing, no_parts}) {
    Graph graph = ports(1, 1);
    const auto many =
        graph.task(control(Control::Kind::scan, {nested(body, {}, {})}, 1'000'000), {});
    const auto loop =
        graph.task(control(Control::Kind::scan, {nested(body, {}, {})}, 0), {}, {many});
    const auto empty = graph.task([](Buffers, int) {}, {}, {loop}, 0);
    graph.task([](Buffers b, int) { number(b[1]) = number(b[0]) + 1; },
               {graph.input(0), graph.output(0)}, {empty});
    EXPECT_EQ(number(graph.run({{number_buffer(1)}})[0][0]), 2);
  }
}

TEST_P(ControlTest, AnExecutionWithoutKernelsEnds) {
  Graph graph;
  const auto first = graph.task([](Buffers, int) {}, {}, {}, 0);
  graph.task([](Buffers, int) {}, {}, {first}, 0);
  EXPECT_TRUE(graph.run().empty());
  EXPECT_TRUE(Graph().run().empty());
}

TEST_P(ControlTest, AFaultInABodyEndsTheExecution) {
  for (std::int32_t when : {0, 3, 99}) {
    std::atomic<std::int32_t> num_rounds = 0;
    Graph round = ports(1, 1);
    const auto parts = round.task(
        [&, when](Buffers b, int part) {
          if (part == 2 && number(b[0]) == when) throw std::out_of_range("round");
        },
        {round.input(0)}, {}, 5);
    round.task(
        [&](Buffers b, int) {
          num_rounds += 1;
          number(b[0]) += 1;
        },
        {round.output(0)}, {parts});
    EXPECT_THROW(counting(100, round).run(), std::out_of_range);
    EXPECT_EQ(num_rounds, when);
    EXPECT_EQ(number(counting(4, increment()).run()[0][0]), 4);
  }
}

TEST_P(ControlTest, CollectivesAreCountedPerStep) {
  Graph body = increment();
  body.executable.instructions[0].collectives = {{"all_reduce", 10, 15}};
  Engine::instance().reset_collective_counts();
  counting(6, body).run();
  const CollectiveCounts counts = Engine::instance().collective_counts();
  ASSERT_EQ(counts.size(), 1U);
  EXPECT_EQ(counts.at("all_reduce").count, 6);
  EXPECT_EQ(counts.at("all_reduce").bytes, 60);
}

TEST(Control, ATaskHasAKernelOrAControl) {
  Graph graph;
  graph.task([](Buffers, int) {});
  graph.executable.tasks[0].kernel = nullptr;
  EXPECT_THROW(graph.run(), InternalError);
}

}  // namespace
}  // namespace tessera::run
