#include "pipeline/program/after_loop.h"

#include <algorithm>
#include <fmt/format.h>

#include "ops/record.h"

namespace tessera::pipeline {

AfterLoop::AfterLoop(const Opened& opened, const std::map<ValueId, std::int64_t>& groups,
                     std::int64_t num_copies)
    : opened_(opened),
      num_copies_(num_copies),
      definition_(opened.whole.values.size(), Stages::kNone),
      group_(opened.whole.values.size(), kEveryGroup),
      depth_(opened.whole.values.size(), 0),
      is_needed_(opened.whole.equations.size(), false) {
  for (const auto& [value, group] : groups) group_[value] = group;
  const std::vector<Equation>& equations = opened.whole.equations;
  for (std::size_t i = 0; i < equations.size(); ++i) {
    for (ValueId id : equations[i].results) definition_[id] = i;
    place(i);
  }
  find_needed();
  collect();
}

void AfterLoop::place(std::size_t index) {
  const Equation& equation = opened_.whole.equations[index];
  std::int64_t most = -1;
  std::int64_t group = kEveryGroup;
  for (ValueId id : equation.operands) {
    if (group_[id] == kEveryGroup) continue;
    const std::int64_t bytes = size_bytes(opened_.whole.type(id));
    if (bytes <= most) continue;
    most = bytes;
    group = group_[id];
  }
  if (group == kEveryGroup) return;
  std::int64_t depth = 0;
  for (ValueId id : equation.operands) {
    if (group_[id] == kEveryGroup || definition_[id] == Stages::kNone) continue;
    depth = std::max(depth, depth_[id] + (group_[id] == group ? 0 : 1));
  }
  for (ValueId id : equation.results) {
    group_[id] = group;
    depth_[id] = depth;
  }
}

void AfterLoop::find_needed() {
  const Function& whole = opened_.whole;
  std::vector<bool> is_read(whole.values.size(), false);
  for (ValueId id : whole.outputs) is_read[id] = true;
  for (std::size_t i = whole.equations.size(); i-- > 0;) {
    const Equation& equation = whole.equations[i];
    is_needed_[i] = std::any_of(equation.results.begin(), equation.results.end(),
                                [&](ValueId id) { return is_read[id]; });
    if (!is_needed_[i]) continue;
    for (ValueId id : equation.operands) is_read[id] = true;
  }
}

/// Whether each task that needs the equation computes it again. If the loop needs it too and it is
/// not cheap, it is computed before the loop instead.
bool AfterLoop::is_repeated(std::size_t index) const {
  const Equation& equation = opened_.whole.equations[index];
  return !opened_.is_before[index] || equation.operands.empty() || ops::is_view(equation);
}

void AfterLoop::add_with_operands(ValueId id, std::int64_t group,
                                  std::set<std::size_t>& equations) {
  const std::size_t index = definition_[id];
  if (index == Stages::kNone || group_[id] != kEveryGroup) return;
  if (!is_repeated(index)) {
    needs_.emplace(id, group);
    return;
  }
  if (!equations.insert(index).second) return;
  for (ValueId operand : opened_.whole.equations[index].operands) {
    add_with_operands(operand, group, equations);
  }
}

void AfterLoop::collect() {
  const Function& whole = opened_.whole;
  for (std::size_t i = 0; i < whole.equations.size(); ++i) {
    const Equation& equation = whole.equations[i];
    const ValueId result = equation.results.empty() ? kNoValue : equation.results[0];
    if (!is_needed_[i] || result == kNoValue || group_[result] == kEveryGroup) continue;
    std::set<std::size_t>& task = tasks_[{depth_[result], group_[result]}];
    task.insert(i);
    for (ValueId id : equation.operands) add_with_operands(id, group_[result], task);
  }
  // Outputs that every group can compute by itself. If groups share memory, only group 0 does.
  for (ValueId id : whole.outputs) {
    if (group_[id] != kEveryGroup || definition_[id] == Stages::kNone) continue;
    for (std::int64_t group = 0; group < num_copies_; ++group) {
      add_with_operands(id, group, tasks_[{0, group}]);
    }
  }
}

std::vector<ValueId> AfterLoop::results_of(const Place& place,
                                           const std::set<std::size_t>& equations) const {
  const Function& whole = opened_.whole;
  std::set<ValueId> wanted(whole.outputs.begin(), whole.outputs.end());
  for (const auto& [other, others] : tasks_) {
    if (other == place) continue;
    for (std::size_t i : others) {
      for (ValueId id : whole.equations[i].operands) {
        if (group_[id] != kEveryGroup) wanted.insert(id);
      }
    }
  }
  std::vector<ValueId> results;
  for (std::size_t i : equations) {
    for (ValueId id : whole.equations[i].results) {
      const bool is_here =
          group_[id] != kEveryGroup || (place.first == 0 && place.second < num_copies_);
      if (is_here && wanted.count(id) != 0) results.push_back(id);
    }
  }
  return results;
}

void AfterLoop::emit_task(Outer& outer, const Place& place, const std::set<std::size_t>& equations,
                          const std::vector<int>& output_alias) const {
  const Function& whole = opened_.whole;
  const auto [depth, group] = place;
  std::vector<ValueId> inputs;
  const std::vector<ValueId> results = results_of(place, equations);
  Function body = function_of(whole, {equations.begin(), equations.end()}, inputs, results);
  std::vector<ValueId> operands;
  for (ValueId id : inputs) operands.push_back(outer.get(id, group));
  ir::Ints shares(results.size(), -1);
  for (std::size_t o = 0; o < whole.outputs.size(); ++o) {
    if (output_alias[o] < 0) continue;
    const ValueId from = whole.inputs[static_cast<std::size_t>(output_alias[o])];
    const auto input = std::find(inputs.begin(), inputs.end(), from) - inputs.begin();
    const auto result = std::find(results.begin(), results.end(), whole.outputs[o]);
    if (input == static_cast<std::ptrdiff_t>(inputs.size()) || result == results.end()) continue;
    shares[static_cast<std::size_t>(result - results.begin())] = input;
  }
  std::string name = fmt::format("after_loop_{}", group);
  if (depth > 0) name += fmt::format("_{}", depth);
  const std::vector<ValueId> made =
      outer.task({.name = std::move(name), .group = group, .shares = std::move(shares)},
                 std::make_shared<const Function>(std::move(body)), operands);
  for (std::size_t i = 0; i < results.size(); ++i) outer.set(results[i], group, made[i]);
}

void AfterLoop::emit(Outer& outer, const std::vector<int>& output_alias) const {
  for (const auto& [place, equations] : tasks_) {
    if (!equations.empty()) emit_task(outer, place, equations, output_alias);
  }
}

}  // namespace tessera::pipeline
