#include "pipeline/program/opened.h"

#include <algorithm>

#include "ir/builder.h"
#include "ops/emit.h"
#include "ops/ops.h"

namespace tessera::pipeline {

namespace {

class Opener {
 public:
  Opener(const Function& step, std::size_t loop, const Stages& stages)
      : step_(step), loop_(step.equations[loop]), stages_(stages), builder_(opened_.whole) {
    opened_.whole = step;
    opened_.operands = loop_.operands;
    opened_.whole.equations.resize(loop);
  }

  Opened open(std::size_t loop) {
    builder_.set_span(loop_.span);
    hoist();
    const std::size_t end_of_before = opened_.whole.equations.size();
    name_results();
    const auto rest = step_.equations.begin() + static_cast<std::ptrdiff_t>(loop) + 1;
    auto& equations = opened_.whole.equations;
    equations.insert(equations.end(), rest, step_.equations.end());
    find_before(end_of_before);
    return std::move(opened_);
  }

 private:
  /// Copies the equations that are equal for all microbatches, with the constants that they read.
  void hoist() {
    const Function& body = stages_.body;
    for (std::size_t i = 0; i < body.equations.size(); ++i) {
      if (stages_.homes[i].kind == Home::Kind::hoisted) copy(i);
    }
  }

  void copy(std::size_t i) {
    Equation equation = stages_.body.equations[i];
    for (ValueId& id : equation.operands) id = outside(id);
    for (ValueId& id : equation.results) {
      const ValueId made = opened_.whole.add_value(stages_.body.values[id]);
      opened_.hoisted[id] = made;
      id = made;
    }
    opened_.whole.equations.push_back(std::move(equation));
  }

  ValueId outside(ValueId id) {
    const std::size_t i = stages_.definition[id];
    if (i == Stages::kNone) return loop_.operands[stages_.input[id]];
    if (opened_.hoisted.count(id) == 0) copy(i);
    return opened_.hoisted.at(id);
  }

  /// A stacked result is the concatenation of one row per microbatch.
  void name_results() {
    const std::size_t num_sums = stages_.parts.num_carry;
    const auto first_row = loop_.results.begin() + static_cast<std::ptrdiff_t>(num_sums);
    opened_.sums.assign(loop_.results.begin(), first_row);
    for (std::size_t k = num_sums; k < loop_.results.size(); ++k) {
      const ValueId row = stages_.body.outputs[k];
      std::vector<ValueId>& rows = opened_.rows.emplace_back();
      std::vector<ValueId> parts;
      for (std::int64_t i = 0; i < stages_.parts.length; ++i) {
        rows.push_back(opened_.whole.add_value(stages_.body.values[row]));
        Shape shape = stages_.body.type(row).shape;
        shape.insert(shape.begin(), 1);
        parts.push_back(builder_.emit(ops::reshape_op, {{"shape", shape}}, {rows.back()}));
        opened_.whole.values[parts.back()].sharding = step_.values[loop_.results[k]].sharding;
      }
      opened_.whole.equations.push_back({.op = &ir::op_named("concatenate"),
                                         .attributes = {{"dim", std::int64_t{0}}},
                                         .operands = std::move(parts),
                                         .results = {loop_.results[k]},
                                         .span = loop_.span});
    }
  }

  void find_before(std::size_t end) {
    const Function& whole = opened_.whole;
    std::vector<bool> is_needed(whole.values.size(), false);
    for (ValueId id : loop_.operands) is_needed[id] = true;
    for (const auto& [inside, made] : opened_.hoisted) is_needed[made] = true;
    opened_.is_before.assign(whole.equations.size(), false);
    for (std::size_t i = end; i-- > 0;) {
      const Equation& equation = whole.equations[i];
      opened_.is_before[i] = std::any_of(equation.results.begin(), equation.results.end(),
                                         [&](ValueId id) { return is_needed[id]; });
      if (!opened_.is_before[i]) continue;
      for (ValueId id : equation.operands) is_needed[id] = true;
    }
  }

  const Function& step_;
  const Equation& loop_;
  const Stages& stages_;
  Opened opened_;
  ir::Builder builder_;
};

}  // namespace

Opened open_loop(const Function& step, std::size_t loop, const Stages& stages) {
  return Opener(step, loop, stages).open(loop);
}

}  // namespace tessera::pipeline
