// Programs of several groups of devices on the host engine.
#include "ops/control/mpmd.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <map>

#include <tessera/error.h>

#include "compile/compile.h"
#include "ir/text.h"
#include "partition/partition.h"
#include "run/engine.h"
#include "tests/fuzz/pipelines.h"
#include "tests/fuzz/random.h"
#include "tests/fuzz/run_sharded.h"

namespace tessera::compile {
namespace {

using ir::Function;
using testing::Arrays;
using testing::Pipeline;

Arrays inputs_of(const Function& function) {
  fuzz::Random random(7);
  Arrays inputs;
  for (ir::ValueId id : function.inputs) {
    ops::HostArray& array = inputs.emplace_back(function.type(id));
    for (float& value : array.data<float>()) {
      value = static_cast<float>(random.between(-1000, 1000)) / 2048.0F;
    }
  }
  return inputs;
}

/// The output aliases with which new weights take the buffers of the old ones.
std::vector<int> updates_of(const Pipeline& pipeline) {
  std::vector<int> alias;
  for (int s = 0; s < pipeline.num_stages; ++s) alias.push_back(pipeline.num_microbatches + s);
  return alias;
}

CompileOptions options_of(const Function& function, const std::vector<int>& alias) {
  CompileOptions options{.is_donated = std::vector<bool>(function.inputs.size(), false),
                         .output_alias = alias,
                         .target = {.num_workers = 3}};
  for (int input : alias) {
    if (input >= 0) options.is_donated[static_cast<std::size_t>(input)] = true;
  }
  return options;
}

std::shared_ptr<const run::Executable> compiled(const Pipeline& pipeline) {
  const Function f = testing::pipeline_step(pipeline);
  return compile(f, options_of(f, updates_of(pipeline)));
}

/// How the engine may use its threads.
struct Threads {
  int count;
  int per_group;
};

class Engines : public ::testing::TestWithParam<Threads> {
 protected:
  void SetUp() override {
    run::Engine::instance().set_num_threads(GetParam().count);
    run::Engine::instance().set_threads_per_group(GetParam().per_group);
  }
  void TearDown() override { run::Engine::instance().set_threads_per_group(0); }
};

TEST_P(Engines, GiveTheBitsOfTheEquations) {
  for (const Pipeline& pipeline :
       {Pipeline{2, 2, 3, false}, Pipeline{2, 2, 3, true}, Pipeline{3, 3, 4, false},
        Pipeline{3, 3, 4, true}, Pipeline{2, 4, 3, true}, Pipeline{1, 2, 2, false}}) {
    const Function f = testing::pipeline_step(pipeline);
    ir::verify(f, "the test");
    partition::verify_partitioned(f, "the test");
    EXPECT_EQ(ir::parse(ir::print(f)), f);
    const Function plain = testing::without_tasks(f);
    const Arrays inputs = inputs_of(f);
    const Arrays wanted = testing::run_reference(plain, inputs);
    EXPECT_EQ(testing::first_difference(testing::run_reference(f, inputs), wanted), std::nullopt);
    const std::vector<int> kept(f.outputs.size(), -1);
    for (const std::vector<int>& alias : {kept, updates_of(pipeline)}) {
      EXPECT_EQ(testing::first_difference(testing::run_partitioned(plain, alias, inputs), wanted),
                std::nullopt);
      EXPECT_EQ(testing::first_difference(testing::run_partitioned(f, alias, inputs), wanted),
                std::nullopt);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Mpmd, Engines,
                         ::testing::Values(Threads{1, 0}, Threads{2, 0}, Threads{3, 0},
                                           Threads{1, 1}, Threads{2, 1}, Threads{3, 1},
                                           Threads{3, 2}));

TEST(Mpmd, EqualBodiesAreCompiledOnce) {
  EXPECT_EQ(compiled({2, 2, 2})->num_bodies, 3);
  EXPECT_EQ(compiled({3, 6, 8})->num_bodies, 3);
  EXPECT_EQ(compiled({3, 6, 8})->group_peak_bytes.size(), 3U);
}

// --- dependencies and memory ---------------------------------------------------------------------

int group_of(const run::Executable& executable, std::size_t task) {
  return executable.instructions[executable.tasks[task].instruction].group;
}

/// Whether a task of one group waits, directly or through others, for a task of another.
bool waits(const run::Executable& executable, int late, int early) {
  std::vector<bool> is_behind(executable.tasks.size(), false);
  for (std::size_t i = 0; i < executable.tasks.size(); ++i) {
    is_behind[i] = is_behind[i] || group_of(executable, i) == early;
    if (!is_behind[i]) continue;
    if (group_of(executable, i) == late) return true;
    for (std::uint32_t next : executable.tasks[i].successors) is_behind[next] = true;
  }
  return false;
}

/// A pipeline with only forward passes: group 1 reads values long after group 0 sends them.
Function one_way(int num_microbatches) {
  Pipeline pipeline{2, 2, num_microbatches, false};
  Function f = testing::pipeline_step(pipeline);
  std::erase_if(f.equations, [](const ir::Equation& equation) {
    return !ops::is_task(equation) ? !ops::is_transfer(equation)
                                   : !ops::task_parts(equation).name.starts_with("fwd");
  });
  f.outputs.clear();
  std::vector<bool> is_defined(f.values.size(), false);
  for (ir::ValueId id : f.inputs) is_defined[id] = true;
  std::erase_if(f.equations, [&](const ir::Equation& equation) {
    const bool is_alive = std::all_of(equation.operands.begin(), equation.operands.end(),
                                      [&](ir::ValueId id) { return is_defined[id]; });
    for (ir::ValueId id : equation.results) is_defined[id] = is_alive;
    if (is_alive && ops::is_task(equation) && ops::task_parts(equation).group == 1) {
      f.outputs.push_back(equation.results[0]);
    }
    return !is_alive;
  });
  return f;
}

TEST(Mpmd, MemoryMakesNoGroupWaitForAnother) {
  const Function f = one_way(6);
  ASSERT_EQ(f.outputs.size(), 6U);
  const auto executable = compile(f, options_of(f, std::vector<int>(6, -1)));
  EXPECT_FALSE(waits(*executable, 0, 1));
  EXPECT_TRUE(waits(*executable, 1, 0));
  const auto step = compiled({2, 2, 3});
  EXPECT_TRUE(waits(*step, 0, 1)) << "gradients come back";
}

TEST(Mpmd, GroupsHaveRangesOfTheArenaOfTheirOwn) {
  const auto executable = compiled({3, 3, 5, true});
  struct Range {
    std::int64_t begin = std::numeric_limits<std::int64_t>::max();
    std::int64_t end = 0;
  };
  std::map<int, Range> written;
  for (std::size_t i = 0; i < executable->tasks.size(); ++i) {
    const run::Task& task = executable->tasks[i];
    // The places of a task include what it reads, which may belong to another group. The memory of
    // its bodies comes last, so look only at that.
    const run::Place& place = executable->places[task.places.back()];
    if (task.control == nullptr || place.space != run::Place::Space::arena) continue;
    Range& range = written[group_of(*executable, i)];
    range.begin = std::min(range.begin, place.offset);
    range.end = std::max(range.end, place.offset + task.control->bodies[0].executable->arena_bytes);
  }
  ASSERT_EQ(written.size(), 3U);
  EXPECT_LE(written[0].end, written[1].begin);
  EXPECT_LE(written[1].end, written[2].begin);
}

TEST(Mpmd, TasksOfAGroupRunInTheOrderOfTheProgram) {
  const auto executable = compiled({3, 6, 4, true});
  std::map<int, std::size_t> last;
  for (std::size_t i = 0; i < executable->tasks.size(); ++i) {
    const int group = group_of(*executable, i);
    if (executable->tasks[i].control == nullptr) continue;
    if (const auto before = last.find(group); before != last.end()) {
      const auto& next = executable->tasks[before->second].successors;
      EXPECT_EQ(std::count(next.begin(), next.end(), i), 1) << "task " << i;
    }
    last[group] = i;
  }
  EXPECT_EQ(last.size(), 3U);
}

TEST(Mpmd, FewerMicrobatchesInFlightTakeLessMemory) {
  const auto all_at_once = compiled({2, 2, 8, false});
  const auto one_by_one = compiled({2, 2, 8, true});
  EXPECT_LT(one_by_one->group_peak_bytes[1], all_at_once->group_peak_bytes[1]);
  EXPECT_LT(one_by_one->arena_bytes, all_at_once->arena_bytes);
  const auto& peaks = all_at_once->group_peak_bytes;
  EXPECT_EQ(all_at_once->device_peak_bytes, std::max(peaks[0], peaks[1]));
  // Eight more microbatches mean eight more arguments of group 0. Group 1 holds the values that it
  // receives and those that it computes from them.
  const std::int64_t row = 2 * 6 * 4;
  const auto twice = compiled({2, 2, 16, false});
  EXPECT_EQ(twice->group_peak_bytes[0] - peaks[0], 8 * row);
  EXPECT_EQ(twice->group_peak_bytes[1] - peaks[1], 2 * 8 * row);
  EXPECT_EQ(compiled({2, 2, 16, true})->group_peak_bytes[1], one_by_one->group_peak_bytes[1]);
}

Function parsed(const std::string& text, const std::string& mesh = "none") {
  Function function = ir::parse("function main[mesh=\"" + mesh + "\", grains=8]" + text);
  ir::verify(function, "the test");
  return function;
}

/// A chain of two tasks; `second` is the second one.
Function two_tasks(const std::string& second, const std::string& outputs) {
  return parsed(R"((%0: f32[1000]<{}>) {
  %1: f32[1000]<{}> = task[body={(%0: f32[1000]<{}>) {
    %1: f32[1000]<{}> = add %0, %0
    return %1
  }}, group=0, microbatch=-1, name="a", shares=[-1], stage=-1] %0
  )" + second + "\n  return " +
                outputs + "\n}");
}
const char* const kSquare = R"(%2: f32[1000]<{}> = task[body={(%0: f32[1000]<{}>) {
    %1: f32[1000]<{}> = mul %0, %0
    return %1
  }}, group=0, microbatch=-1, name="b", shares=[0], stage=-1] %1
  %3: f32[1000]<{}> = transfer[from=0, to=1] %2
  %4: f32[1000]<{}> = task[body={(%0: f32[1000]<{}>) {
    %1: f32[1000]<{}> = neg %0
    return %1
  }}, group=1, microbatch=-1, name="c", shares=[0], stage=-1] %3)";

void expect_reference(const Function& f) {
  const Arrays inputs = inputs_of(f);
  for (int threads : {1, 2}) {
    run::Engine::instance().set_num_threads(threads);
    EXPECT_EQ(testing::first_difference(
                  testing::run_partitioned(f, std::vector<int>(f.outputs.size(), -1), inputs),
                  testing::run_reference(f, inputs)),
              std::nullopt);
  }
}

TEST(Mpmd, ResultsTakeOverMemoryThatNobodyReads) {
  const Function f = two_tasks(kSquare, "%4");
  const auto executable = compile(f, options_of(f, {-1}));
  // The arena has one array for a and b; c writes the result. The bodies need no memory.
  EXPECT_GE(executable->arena_bytes, 4000);
  EXPECT_LT(executable->arena_bytes, 8000);
  // Group 0 holds the argument, and a or b. Group 1 holds what it receives, and the result.
  EXPECT_EQ(executable->group_peak_bytes, (std::vector<std::int64_t>{8000, 8000}));
  expect_reference(f);
}

TEST(Mpmd, MemoryThatIsReadAgainIsCopied) {
  const Function f = two_tasks(kSquare, "%1, %2, %4");
  const auto executable = compile(f, options_of(f, {-1, -1, -1}));
  EXPECT_LT(executable->arena_bytes, 4000) << "all three are results";
  EXPECT_EQ(executable->group_peak_bytes, (std::vector<std::int64_t>{12000, 8000}));
  expect_reference(f);
}

/// A value that one group reads must not be overwritten by another, even if nothing else reads it.
TEST(Mpmd, AReceivedValueStaysWithItsSender) {
  const Function f = two_tasks(kSquare, "%4");
  const auto executable = compile(f, options_of(f, {-1}));
  EXPECT_FALSE(waits(*executable, 0, 1));
  Function longer = f;
  longer.outputs = {f.equations[2].results[0]};
  expect_reference(longer);
}

TEST(Mpmd, TransfersAreCounted) {
  const Function f = testing::pipeline_step({2, 2, 3, true});
  run::Engine::instance().reset_collective_counts();
  testing::run_partitioned(f, {-1, -1}, inputs_of(f));
  const run::CollectiveCounts counts = run::Engine::instance().collective_counts();
  // Three values go forward and three back; each device holds two rows of six.
  EXPECT_EQ(counts.at("transfer").count, 6);
  EXPECT_EQ(counts.at("transfer").bytes, 6 * 2 * 6 * 4);
  EXPECT_EQ(counts.at("transfer").wire_bytes, 6 * 2 * 6 * 4);
  EXPECT_EQ(counts.at("reduce_scatter").count, 6);
}

// --- timeline ------------------------------------------------------------------------------------

TEST(Mpmd, TheTimelineKeepsTheOrderOfThePipeline) {
  const Function f = testing::pipeline_step({2, 2, 3, false});
  run::Engine& engine = run::Engine::instance();
  engine.set_num_threads(2);
  testing::run_partitioned(f, {-1, -1}, inputs_of(f));
  EXPECT_TRUE(engine.stop_timeline().empty()) << "it was off";
  engine.start_timeline();
  for (int i = 0; i < 2; ++i) testing::run_partitioned(f, {-1, -1}, inputs_of(f));
  const std::vector<run::TaskTime> tasks = engine.stop_timeline();
  ASSERT_EQ(tasks.size(), 2U * (2 * 3 * 2 + 2));
  std::map<std::pair<std::int64_t, std::string>, run::TaskTime> found;
  for (const run::TaskTime& task : tasks) {
    EXPECT_LE(task.start_ns, task.end_ns);
    EXPECT_TRUE(found.emplace(std::pair(task.execution, task.name), task).second);
  }
  for (std::int64_t run : {0, 1}) {
    for (const char* m : {"0", "1", "2"}) {
      const auto& early = found.at({run, std::string("fwd_0_") + m});
      const auto& late = found.at({run, std::string("fwd_1_") + m});
      EXPECT_LE(early.end_ns, late.start_ns);
      EXPECT_EQ(early.group, 0);
      EXPECT_EQ(late.stage, 1);
      EXPECT_EQ(std::to_string(late.microbatch), m);
      const auto& back = found.at({run, std::string("bwd_1_") + m});
      EXPECT_LE(late.end_ns, back.start_ns);
    }
    EXPECT_EQ(found.at({run, "after_loop_1"}).microbatch, -1);
  }
  // Tasks of one group never overlap.
  std::map<int, std::int64_t> end;
  for (const run::TaskTime& task : tasks) {
    EXPECT_LE(end[task.group], task.start_ns);
    end[task.group] = task.end_ns;
  }
}

// --- what is refused -----------------------------------------------------------------------------

std::string refused(const std::function<void()>& what) {
  try {
    what();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void expect_refused(const std::string& second, const std::string& why) {
  const Function f = two_tasks(second, "%1");
  const auto verify = [&] { partition::verify_partitioned(f, "the test"); };
  EXPECT_NE(refused(verify).find(why), std::string::npos) << refused(verify);
  const auto compiles = [&] { compile(f, options_of(f, {-1})); };
  EXPECT_NE(refused(compiles), "");
}

std::string task_text(const std::string& group, const std::string& operand,
                      const std::string& shares = "[-1]") {
  return R"(%2: f32[1000]<{}> = task[body={(%0: f32[1000]<{}>) {
    %1: f32[1000]<{}> = mul %0, %0
    return %1
  }}, group=)" +
         group + R"(, microbatch=-1, name="b", shares=)" + shares + ", stage=-1] " + operand;
}

TEST(MpmdVerify, ValuesAreReadWhereTheyLive) {
  expect_refused(task_text("1", "%1"), "operand 0 lives in group 0 and is read in group 1");
  expect_refused("%2: f32[1000]<{}> = transfer[from=1, to=0] %1", "operand 0 lives in group 0");
  expect_refused(
      "%2: f32[1000]<{}> = reshape[shape=[1000]] %1\n" +
          [] {
            std::string text = task_text("1", "%2");
            return text.replace(0, 2, "%3");
          }(),
      "operand 0 lives in group 0");
  expect_refused("%2: f32[1000]<{}> = mul %1, %1", "is outside of tasks");
}

TEST(MpmdVerify, AttributesFit) {
  const auto error = [](const std::string& group, const std::string& shares) {
    return refused([&] { two_tasks(task_text(group, "%1", shares), "%2"); });
  };
  EXPECT_EQ(error("0", "[0]"), "");
  EXPECT_NE(error("-1", "[-1]").find("group = -1"), std::string::npos);
  EXPECT_NE(error("0", "[1]").find("shares the memory of operand 1"), std::string::npos);
  EXPECT_NE(error("0", "[-2]").find("shares the memory of operand -2"), std::string::npos);
  EXPECT_NE(error("0", "[]").find("shares has 0 entries"), std::string::npos);
  const auto transfer = [] { two_tasks("%2: f32[1000]<{}> = transfer[from=0, to=0] %1", "%2"); };
  EXPECT_NE(refused(transfer).find("to itself"), std::string::npos);
}

TEST(MpmdVerify, TasksAreLaidOutAsTheirBodies) {
  const auto with = [](const std::string& operand, const std::string& inside,
                       const std::string& result, const std::string& share) {
    return parsed("(%0: f32[8]<{" + operand + "}>) {\n  %1: f32[8]<{" + result +
                      "}> = task[body={(%0: f32[8]<{" + inside + "}>) {\n    %1: f32[8]<{" +
                      result + "}> = " + (inside == result ? "neg" : "all_gather") +
                      " %0\n    return %1\n  }}, group=0, microbatch=0, name=\"b\", shares=[" +
                      share + "], stage=0] %0\n  return %1\n}",
                  "a=2");
  };
  const auto verdict = [](const Function& f) {
    return refused([&] { partition::verify_partitioned(f, "the test"); });
  };
  EXPECT_EQ(verdict(with("a", "a", "a", "0")), "");
  EXPECT_EQ(verdict(with("a", "a", "", "-1")), "");
  const std::string reason = "another sharding inside";
  EXPECT_NE(verdict(with("", "a", "a", "-1")).find(reason), std::string::npos);
  EXPECT_NE(verdict(with("a", "a", "", "0")).find("has another sharding"), std::string::npos);
}

TEST(MpmdVerify, TasksAreNotNested) {
  const Function f = parsed(R"((%0: f32[4]<{}>) {
  %1: f32[4]<{}> = scan[body={(%0: f32[4]<{}>) {
    %1: f32[4]<{}> = task[body={(%0: f32[4]<{}>) {
      %1: f32[4]<{}> = neg %0
      return %1
    }}, group=0, microbatch=-1, name="b", shares=[-1], stage=-1] %0
    return %1
  }}, length=2, num_carry=1, num_consts=0, reverse=false] %0
  return %1
})");
  const auto compiles = [&] { compile(f, options_of(f, {-1})); };
  EXPECT_NE(refused(compiles).find("tasks are not nested"), std::string::npos);
}

TEST(Mpmd, WhatNobodyReadsIsPruned) {
  const Function f = parsed(R"((%0: f32[4]<{}>, %1: f32[4]<{}>, %2: f32[4]<{}>) {
  %3: f32[4]<{}>, %4: f32[4]<{}>, %5: f32[4]<{}> = task[body={
      (%0: f32[4]<{}>, %1: f32[4]<{}>, %2: f32[4]<{}>) {
    %3: f32[4]<{}> = neg %0
    %4: f32[4]<{}> = neg %2
    %5: f32[4]<{}> = add %2, %2
    return %3, %4, %5
  }}, group=0, microbatch=-1, name="b", shares=[0,2,1], stage=-1] %0, %1, %2
  return %4, %5
})");
  const Function pruned = ir::without_dead_code(f);
  const ir::Equation& task = pruned.equations.at(0);
  EXPECT_EQ(task.operands.size(), 1U);
  EXPECT_EQ(ops::task_parts(task).shares, (ir::Ints{0, -1}));
  ir::verify(pruned, "the test");
}

}  // namespace
}  // namespace tessera::compile
