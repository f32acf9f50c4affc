// The comparison finds pipelines that are made wrong on purpose.
#include <functional>
#include <gtest/gtest.h>
#include <map>

#include "ir/text.h"
#include "ops/control/control.h"
#include "ops/control/mpmd.h"
#include "tests/fuzz/pipeline/compare.h"
#include "tests/fuzz/pipelines.h"
#include "tests/fuzz/run_sharded.h"
#include "tests/ops/sample_inputs.h"

namespace tessera::fuzz {
namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;
using testing::Arrays;

/// A step as tasks of groups, its inputs and the expected outputs.
struct Program {
  Function function;
  std::vector<int> alias;
  Arrays inputs;
  Arrays wanted;

  explicit Program(std::uint64_t seed)
      : function(ir::parse(task_program(make_staged_case(seed)))),
        alias(function.outputs.size(), -1) {
    std::mt19937_64 generator(seed);
    for (const ValueId id : function.inputs) {
      inputs.push_back(testing::random_array(generator, {.type = function.type(id)}));
    }
    wanted = testing::run_partitioned(testing::without_tasks(function), alias, inputs);
  }

  bool is_right(const Function& changed) const {
    return !testing::first_difference(testing::run_partitioned(changed, alias, inputs), wanted);
  }
};

/// The task that computes a value, and the position of the value among its results.
struct Maker {
  const Equation* task = nullptr;
  std::size_t result = 0;
};

std::map<ValueId, Maker> makers_in(const Function& function) {
  std::map<ValueId, Maker> makers;
  for (const Equation& equation : function.equations) {
    if (!ops::is_task(equation)) continue;
    for (std::size_t i = 0; i < equation.results.size(); ++i) {
      makers[equation.results[i]] = {&equation, i};
    }
  }
  return makers;
}

bool is_of_microbatch(const Equation& equation) {
  return ops::is_task(equation) && ops::task_parts(equation).microbatch >= 0;
}

/// All functions that result from changing one task.
using Fault = std::function<std::vector<Function>(const Function&)>;

/// A task adds to the sum that the previous task started from, so the contribution of the previous
/// task is lost.
std::vector<Function> with_stale_sums(const Function& function) {
  const std::map<ValueId, Maker> makers = makers_in(function);
  std::vector<Function> changed;
  for (std::size_t i = 0; i < function.equations.size(); ++i) {
    const Equation& equation = function.equations[i];
    if (!is_of_microbatch(equation)) continue;
    for (const std::int64_t operand : ops::task_parts(equation).shares) {
      if (operand < 0) continue;
      const auto number = static_cast<std::size_t>(operand);
      const auto maker = makers.find(equation.operands[number]);
      if (maker == makers.end() || !is_of_microbatch(*maker->second.task)) continue;
      const std::int64_t before = ops::task_parts(*maker->second.task).shares[maker->second.result];
      if (before < 0) continue;
      changed.push_back(function);
      changed.back().equations[i].operands[number] =
          maker->second.task->operands[static_cast<std::size_t>(before)];
    }
  }
  return changed;
}

/// Two operands of equal type of a task are exchanged.
std::vector<Function> with_exchanged_operands(const Function& function) {
  std::vector<Function> changed;
  for (std::size_t i = 0; i < function.equations.size(); ++i) {
    const Equation& equation = function.equations[i];
    if (!is_of_microbatch(equation)) continue;
    for (std::size_t k = 1; k < equation.operands.size(); ++k) {
      const ValueId a = equation.operands[k - 1];
      const ValueId b = equation.operands[k];
      if (a == b || function.values[a] != function.values[b]) continue;
      changed.push_back(function);
      std::swap(changed.back().equations[i].operands[k - 1],
                changed.back().equations[i].operands[k]);
    }
  }
  return changed;
}

/// A task reads the value of another microbatch.
std::vector<Function> with_other_microbatches(const Function& function) {
  const std::map<ValueId, Maker> makers = makers_in(function);
  std::map<std::string, const Equation*> latest;  // per kind of task
  std::vector<Function> changed;
  for (std::size_t i = 0; i < function.equations.size(); ++i) {
    const Equation& equation = function.equations[i];
    if (!is_of_microbatch(equation)) continue;
    const Equation* const before = std::exchange(latest[ops::task_parts(equation).name], &equation);
    if (before == nullptr || before->operands.size() != equation.operands.size()) continue;
    for (std::size_t k = 0; k < equation.operands.size(); ++k) {
      const ValueId own = equation.operands[k];
      const ValueId other = before->operands[k];
      const auto maker = makers.find(own);
      const bool is_sum = maker != makers.end() &&
                          ops::task_parts(*maker->second.task).shares[maker->second.result] >= 0;
      if (own == other || is_sum || function.values[own] != function.values[other]) continue;
      changed.push_back(function);
      changed.back().equations[i].operands[k] = other;
    }
  }
  return changed;
}

/// Plants the fault at some positions of some programs, one at a time. Expects at least `percent`
/// percent of them to change an output.
void expect_seen(const Fault& fault, int percent) {
  constexpr std::uint64_t kPrograms = 6;
  constexpr std::size_t kPlaces = 5;  // of a program
  int planted = 0;
  int seen = 0;
  for (std::uint64_t seed = 1; seed <= kPrograms; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Program program(seed);
    ASSERT_TRUE(program.is_right(program.function));
    const std::vector<Function> changed = fault(program.function);
    for (std::size_t i = 0; i < changed.size(); i += 1 + changed.size() / kPlaces) {
      ++planted;
      seen += program.is_right(changed[i]) ? 0 : 1;
    }
  }
  EXPECT_GE(planted, 10);
  EXPECT_GE(seen * 100, planted * percent) << seen << " of " << planted;
}

TEST(StagedFault, AStaleSum) { expect_seen(with_stale_sums, 90); }
// Not 100, because some operands are equal, such as the zeros that sums start from.
TEST(StagedFault, ExchangedOperands) { expect_seen(with_exchanged_operands, 60); }
TEST(StagedFault, WhatAnotherMicrobatchMade) { expect_seen(with_other_microbatches, 90); }

}  // namespace
}  // namespace tessera::fuzz
