// The program of a pipeline as a list of what the groups do.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "ops/control/mpmd.h"
#include "ops/record.h"
#include "pipeline/pipeline.h"

namespace tessera::pipeline {

namespace {

using ir::Equation;
using ir::ValueId;

class TaskTextWriter {
 public:
  explicit TaskTextWriter(const ir::Function& program)
      : program_(program), base_(program.values.size()), last_use_(program.values.size(), kNever) {
    for (ValueId id = 0; id < base_.size(); ++id) base_[id] = id;
    for (std::size_t i = 0; i < program.equations.size(); ++i) {
      const Equation& equation = program.equations[i];
      const bool makes = ops::is_task(equation) || ops::is_transfer(equation);
      if (!makes) base_[equation.results[0]] = base_[equation.operands[0]];
      for (ValueId id : equation.operands) last_use_[base_[id]] = i;
    }
    for (ValueId id : program.inputs) last_use_[id] = kNever;
    for (ValueId id : program.outputs) last_use_[base_[id]] = kNever;
  }

  std::string write() {
    for (std::size_t i = 0; i < program_.equations.size(); ++i) {
      const Equation& equation = program_.equations[i];
      if (ops::is_task(equation)) task(equation);
      if (ops::is_transfer(equation)) transfer(equation);
      remove_dead(i);
    }
    return std::move(text_);
  }

 private:
  static constexpr std::size_t kNever = ~std::size_t{0};

  std::string names(const std::vector<ValueId>& ids) const {
    std::string text;
    for (ValueId id : ids) text += fmt::format("{}%{}", text.empty() ? "" : " ", id);
    return text;
  }

  void task(const Equation& equation) {
    const ops::TaskParts parts = ops::task_parts(equation);
    text_ += fmt::format("{} = task[name={}, group={}, stage={}, microbatch={}, shares=[{}]] {}\n",
                         names(equation.results), parts.name, parts.group, parts.stage,
                         parts.microbatch, fmt::join(parts.shares, ","), names(equation.operands));
    for (ValueId id : equation.results) group_[id] = parts.group;
  }

  void transfer(const Equation& equation) {
    const ValueId id = equation.results[0];
    group_[id] = equation.attributes.integer("to");
    text_ +=
        fmt::format("%{}: {} = transfer[from={}, to={}] %{}\n", id, to_string(program_.type(id)),
                    equation.attributes.integer("from"), group_[id], equation.operands[0]);
  }

  /// Writes the deletes of values that this equation was the last to read.
  void remove_dead(std::size_t index) {
    std::map<std::int64_t, std::vector<ValueId>> dead;
    for (ValueId id : program_.equations[index].operands) {
      const ValueId base = base_[id];
      if (last_use_[base] != index || group_.count(base) == 0) continue;
      last_use_[base] = kNever;
      dead[group_[base]].push_back(base);
    }
    for (const auto& [group, ids] : dead) {
      text_ += fmt::format("delete[group={}] {}\n", group, names(ids));
    }
  }

  const ir::Function& program_;
  std::vector<ValueId> base_;          // per value: itself, or the value that it is a view of
  std::vector<std::size_t> last_use_;  // per value: the last equation that reads it
  std::map<ValueId, std::int64_t> group_;
  std::string text_;
};

}  // namespace

std::string task_text(const ir::Function& program) { return TaskTextWriter(program).write(); }

}  // namespace tessera::pipeline
