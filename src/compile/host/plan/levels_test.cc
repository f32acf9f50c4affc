// The distance of each task from the end of a program.
#include "compile/host/plan/levels.h"

#include <gtest/gtest.h>

namespace tessera::compile::host {
namespace {

/// A chain of tasks with these flops, each in its own instruction.
std::shared_ptr<run::Executable> chain(const std::vector<std::int64_t>& flops) {
  auto executable = std::make_shared<run::Executable>();
  for (std::uint32_t i = 0; i < flops.size(); ++i) {
    executable->instructions.emplace_back().flops = flops[i];
    run::Task& task = executable->tasks.emplace_back();
    task.instruction = i;
    if (i + 1 < flops.size()) task.successors = {i + 1};
  }
  return executable;
}

TEST(Levels, AddUpAlongTheLongestChain) {
  const auto executable = chain({1000000, 0, 1000000});
  std::vector<run::Task>& tasks = executable->tasks;
  set_levels(*executable);
  const std::int64_t last = tasks[2].level;
  const std::int64_t task_without_work = tasks[1].level - last;
  EXPECT_GT(task_without_work, 0);
  EXPECT_GT(last, task_without_work);
  EXPECT_EQ(tasks[0].level, 2 * last + task_without_work);
  // An additional, shorter path changes nothing.
  tasks[0].successors = {1, 2};
  set_levels(*executable);
  EXPECT_EQ(tasks[0].level, 2 * last + task_without_work);
}

TEST(Levels, TasksOfAnInstructionShareItsWork) {
  const auto one = chain({2000000});
  const auto two = chain({2000000});
  two->tasks.push_back(two->tasks[0]);
  const auto none = chain({0});
  for (const auto& executable : {one, two, none}) set_levels(*executable);
  EXPECT_EQ(two->tasks[0].level, two->tasks[1].level);
  EXPECT_EQ(2 * (two->tasks[0].level - none->tasks[0].level),
            one->tasks[0].level - none->tasks[0].level);
}

TEST(Levels, ALoopTakesAsLongAsAllItsRounds) {
  const auto body = chain({1000000, 1000000});
  set_levels(*body);
  const auto level_of_scan = [&](std::int64_t length) {
    run::Control control{};
    control.kind = run::Control::Kind::scan;
    control.length = length;
    control.bodies = {{.executable = body, .binding = {}}};
    const auto executable = chain({0});
    executable->tasks[0].control = std::make_shared<const run::Control>(std::move(control));
    set_levels(*executable);
    return executable->tasks[0].level;
  };
  EXPECT_EQ(level_of_scan(5) - level_of_scan(2), 3 * body->tasks[0].level);
}

TEST(Levels, ProgramsOfLittleWorkAreShort) {
  const auto is_short = [](const std::shared_ptr<run::Executable>& executable) {
    set_levels(*executable);
    return executable->is_short;
  };
  EXPECT_TRUE(is_short(chain({})));
  EXPECT_TRUE(is_short(chain({1000, 1000})));
  EXPECT_FALSE(is_short(chain({1000, 100'000'000})));
  EXPECT_FALSE(is_short(chain(std::vector<std::int64_t>(1000, 100'000))));
  const auto moves = chain({0});
  moves->instructions[0].bytes = 1 << 26;
  EXPECT_FALSE(is_short(moves));
  const auto communicates = chain({0, 0});
  communicates->tasks[1].communicates = true;
  EXPECT_FALSE(is_short(communicates));
  const auto loop = chain({0});
  loop->tasks[0].control = std::make_shared<const run::Control>();
  EXPECT_FALSE(is_short(loop));
}

TEST(Levels, BodiesWithoutWorkAndCollectivesAreShort) {
  const auto is_short_body = [](const std::shared_ptr<run::Executable>& executable) {
    set_levels(*executable);
    return executable->is_short_body;
  };
  EXPECT_TRUE(is_short_body(chain({1000, 1000})));
  EXPECT_FALSE(is_short_body(chain({10'000'000})));
  const auto sums = chain({1000});
  sums->instructions[0].collectives = {{"all_reduce", 8, 12}};
  EXPECT_FALSE(is_short_body(sums));
}

TEST(Levels, BodiesWhoseTasksAllWaitForEachOtherAreShort) {
  class Parts final : public run::Kernel {
   public:
    explicit Parts(int count) : count_(count) {}
    int num_parts() const override { return count_; }
    void run(std::span<std::byte* const>, int) const override {}

   private:
    int count_;
  };
  const auto body = [](bool is_chain, int num_parts) {
    const auto executable = chain({400'000, 400'000});
    if (!is_chain) executable->tasks[0].successors = {};
    executable->tasks[0].kernel = std::make_shared<const Parts>(num_parts);
    set_levels(*executable);
    return executable->is_short_body;
  };
  EXPECT_TRUE(body(true, 1));
  EXPECT_FALSE(body(true, 2));
  EXPECT_FALSE(body(false, 1));
}

TEST(Levels, BodiesWithFewRoundsOfShortBodiesAreShort) {
  using Kind = run::Control::Kind;
  const auto is_short_body = [](Kind kind, std::int64_t length, std::int64_t flops) {
    const auto round = chain({flops});
    set_levels(*round);
    run::Control control{};
    control.kind = kind;
    control.length = length;
    control.bodies = {{.executable = round, .binding = {}}};
    const auto body = chain({0, 1000});
    body->tasks[0].control = std::make_shared<const run::Control>(std::move(control));
    set_levels(*body);
    return body->is_short_body;
  };
  EXPECT_TRUE(is_short_body(Kind::scan, 0, 1000));
  EXPECT_TRUE(is_short_body(Kind::scan, 10, 1000));
  EXPECT_FALSE(is_short_body(Kind::scan, 10, 1'000'000));
  EXPECT_FALSE(is_short_body(Kind::scan, 1'000'000, 0));
  EXPECT_FALSE(is_short_body(Kind::scan, 1'000'000'000'000, 1000));
  EXPECT_TRUE(is_short_body(Kind::cond, 0, 1000));
  EXPECT_FALSE(is_short_body(Kind::cond, 0, 1'000'000));
  EXPECT_FALSE(is_short_body(Kind::while_loop, 0, 0));
}

}  // namespace
}  // namespace tessera::compile::host
