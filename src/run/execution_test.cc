// Which task runs first.
#include "run/execution.h"

#include <gtest/gtest.h>

#include "run/test_graph.h"

namespace tessera::run {
namespace {

using testing::Buffers;
using testing::Graph;

/// A graph whose tasks do nothing, and its execution.
struct Program {
  Graph graph;
  std::unique_ptr<Frame> frame;
  std::unique_ptr<Execution> execution;

  std::uint32_t task(std::int64_t level, int parts = 1,
                     const std::vector<std::uint32_t>& after = {}) {
    const std::uint32_t id = graph.task([](Buffers, int) {}, {}, after, parts);
    graph.executable.tasks[id].level = level;
    return id;
  }
  void start() {
    frame = std::make_unique<Frame>(graph.executable, Binding(), nullptr);
    execution = std::make_unique<Execution>(*frame, ExecutionOptions());
  }
  TakenPart take() { return execution->take().value(); }
  void end(const TakenPart& taken) {
    if (frame->end_parts(taken.ref.task, 1)) execution->finish(taken);
    execution->end_parts(taken);
  }
};

TEST(Execution, TheLongestWayToTheEndGoesFirst) {
  Program p;
  const std::uint32_t low = p.task(1);
  const std::uint32_t high = p.task(7);
  const std::uint32_t first_of_equals = p.task(5);
  const std::uint32_t second_of_equals = p.task(5);
  const std::uint32_t late = p.task(6, 1, {high});
  p.start();
  for (const std::uint32_t expected : {high, late, first_of_equals, second_of_equals, low}) {
    const TakenPart taken = p.take();
    EXPECT_EQ(taken.ref.task, expected);
    p.end(taken);
  }
  EXPECT_TRUE(p.execution->is_over());
}

TEST(Execution, WhatHasBegunGoesBeforeAnythingElse) {
  Program p;
  const std::uint32_t short_one = p.task(9);
  const std::uint32_t begun = p.task(2, 3);
  const std::uint32_t urgent = p.task(8, 1, {short_one});
  p.start();
  const TakenPart first = p.take();
  EXPECT_EQ(first.ref.task, short_one);
  EXPECT_EQ(p.take().ref.task, begun);
  p.end(first);
  EXPECT_EQ(p.take().ref.task, begun);
  EXPECT_EQ(p.take().ref.task, begun);
  EXPECT_EQ(p.take().ref.task, urgent);
  EXPECT_FALSE(p.execution->take());
}

}  // namespace
}  // namespace tessera::run
