// Loop-invariant code motion: what is the same in every round of a loop is computed once, before
// it.
#include <algorithm>
#include <numeric>

#include "ir/bodies.h"
#include "ir/effects.h"
#include "ops/control/control.h"
#include "ops/control/internal.h"
#include "ops/ops.h"
#include "ops/record.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

/// Results that are larger than what they are computed from stay in the loop, unless each element
/// takes this many operations.
constexpr double kManyFlops = 16;

/// The values that leave the body of a loop.
class Invariants {
 public:
  Invariants(const Function& body, std::size_t num_consts, ir::Effects& effects)
      : body_(body),
        definition_(body.values.size(), nullptr),
        is_invariant_(body.values.size(), false),
        bytes_(body.values.size(), 0),
        moves_(body.values.size(), false),
        is_asked_(body.values.size(), false) {
    for (std::size_t i = 0; i < num_consts; ++i) {
      is_invariant_[body.inputs[i]] = true;
      bytes_[body.inputs[i]] = static_cast<double>(size_bytes(body.type(body.inputs[i])));
    }
    for (const Equation& equation : body.equations) look_at(equation, effects);
    for (const Equation& equation : body.equations) {
      // All results of an equation vary, or none does; a loop of effects may have none at all.
      if (!equation.results.empty() && is_invariant_[equation.results[0]]) continue;
      for (const ValueId id : equation.operands) ask_for(id);
    }
    for (const ValueId id : body.outputs) ask_for(id);
  }

  /// The values that the rounds get from outside, in the order in which they are defined.
  const std::vector<ValueId>& hoisted() const { return hoisted_; }

 private:
  void look_at(const Equation& equation, ir::Effects& effects) {
    const bool is_same =
        may_move(equation, effects) &&
        std::ranges::all_of(equation.operands, [&](ValueId id) { return is_invariant_[id]; });
    double sources = 0;
    for (std::size_t i = 0; is_same && i < equation.operands.size(); ++i) {
      const auto* const before = equation.operands.data() + i;
      if (std::find(equation.operands.data(), before, *before) == before) {
        sources += bytes_[*before];
      }
    }
    double results = 0;
    for (const ValueId id : equation.results) {
      definition_[id] = &equation;
      is_invariant_[id] = is_same;
      results += static_cast<double>(size_bytes(body_.type(id)));
    }
    const bool moves = is_same && is_worth_moving(equation, results, sources);
    for (const ValueId id : equation.results) {
      moves_[id] = moves;
      bytes_[id] = moves ? static_cast<double>(size_bytes(body_.type(id))) : sources;
    }
  }

  /// Barriers, stages, annotations and calls of Python stay where they are written.
  static bool may_move(const Equation& equation, ir::Effects& effects) {
    const OpRecord& op = *equation.op;
    if (&op == &optimization_barrier_op || &op == &pure_callback_op ||
        &op == &sharding_constraint_op || ir::is_inspection(op) || ir::gives_back(equation)) {
      return false;
    }
    const bool is_control = *op.pattern == Pattern::control;
    return (!is_control || op.bodies != nullptr) && !effects.has(equation);
  }

  /// At the point where they are read, views cost nothing, and constants and indices cost little.
  bool is_worth_moving(const Equation& equation, double results, double sources) const {
    const Pattern pattern = *equation.op->pattern;
    if (pattern == Pattern::view || pattern == Pattern::generator) return false;
    if (results <= sources || pattern == Pattern::control) return true;
    const double flops = (*equation.op->cost)(equation.attributes, operand_types(body_, equation),
                                              result_types(body_, equation));
    double elements = 0;
    for (const ValueId id : equation.results) {
      elements += static_cast<double>(num_elements(body_.type(id).shape));
    }
    return flops >= kManyFlops * elements;
  }

  void ask_for(ValueId id) {
    if (!is_invariant_[id] || is_asked_[id]) return;
    is_asked_[id] = true;
    if (moves_[id]) {
      hoisted_.insert(std::ranges::upper_bound(hoisted_, id), id);
    } else if (const Equation* made = definition_[id]) {
      for (const ValueId operand : made->operands) ask_for(operand);
    }
  }

  const Function& body_;
  std::vector<const Equation*> definition_;
  std::vector<bool> is_invariant_;
  std::vector<double> bytes_;  // read from outside the loop to compute the value
  std::vector<bool> moves_;
  std::vector<bool> is_asked_;
  std::vector<ValueId> hoisted_;
};

/// The equations that compute the values, in order.
std::vector<const Equation*> equations_of(const Function& body,
                                          const std::vector<ValueId>& values) {
  std::vector<bool> is_needed(body.values.size(), false);
  for (const ValueId id : values) is_needed[id] = true;
  std::vector<const Equation*> result;
  for (auto it = body.equations.rbegin(); it != body.equations.rend(); ++it) {
    if (std::ranges::none_of(it->results, [&](ValueId id) { return is_needed[id]; })) continue;
    for (const ValueId id : it->operands) is_needed[id] = true;
    result.push_back(&*it);
  }
  std::ranges::reverse(result);
  return result;
}

/// Adds inputs for these values of `body` to the function, from input `at` on; returns their ids.
std::vector<ValueId> add_inputs(Function& f, std::size_t at, const Function& body,
                                const std::vector<ValueId>& values) {
  std::vector<ValueId> inputs;
  for (const ValueId id : values) inputs.push_back(f.add_value(body.values[id]));
  f.inputs.insert(f.inputs.begin() + static_cast<std::ptrdiff_t>(at), inputs.begin(), inputs.end());
  return inputs;
}

/// Moves loop-invariant equations from the loop to the end of the function around it.
bool shorten(Equation& loop, Function& around, ir::Effects& effects) {
  const FunctionPtr body = loop.attributes.shared_body("body");
  const auto consts = static_cast<std::size_t>(loop.attributes.integer("num_consts"));
  const Invariants invariants(*body, consts, effects);
  if (invariants.hoisted().empty()) return false;
  compute_before(loop, around, invariants.hoisted());
  return true;
}

}  // namespace

bool has_hoistable_rounds(const Equation& equation) {
  if (equation.op == &while_op) return true;
  // A pipeline runs the rounds in stages, which must contain all that they need.
  return equation.op == &scan_op && !scan_parts(equation).are_microbatches;
}

Function with_changed_loops(Function f, const std::function<bool(Equation&, Function&)>& change) {
  bool is_changed = false;
  f = with_replaced(std::move(f), [&](Builder& b, Equation& loop) {
    is_changed = (has_hoistable_rounds(loop) && change(loop, b.function())) || is_changed;
    return std::optional<std::vector<ValueId>>();
  });
  return is_changed ? ir::without_dead_code(std::move(f)) : f;
}

void compute_before(Equation& loop, Function& around, const std::vector<ValueId>& values) {
  const FunctionPtr body = loop.attributes.shared_body("body");
  const auto consts = static_cast<std::size_t>(loop.attributes.integer("num_consts"));
  std::vector<ValueId> outside(body->values.size(), ir::kNoValue);
  for (std::size_t i = 0; i < consts; ++i) outside[body->inputs[i]] = loop.operands[i];
  for (const Equation* equation : equations_of(*body, values)) {
    Equation& copy = around.equations.emplace_back(*equation);
    for (ValueId& id : copy.operands) id = outside[id];
    for (ValueId& id : copy.results) id = outside[id] = around.add_value(body->values[id]);
  }
  std::vector<ValueId> added;
  for (const ValueId id : values) added.push_back(outside[id]);
  const auto place = static_cast<std::ptrdiff_t>(consts);
  loop.operands.insert(loop.operands.begin() + place, added.begin(), added.end());
  loop.attributes = ir::with_bodies(loop.attributes, [&](const FunctionPtr& function) {
    if (function == body) return with_inputs(*body, consts, values);
    Function condition = *function;
    add_inputs(condition, consts, *body, values);
    return std::make_shared<const Function>(ir::without_dead_code(std::move(condition)));
  });
  loop.attributes.set("num_consts", static_cast<std::int64_t>(consts + values.size()));
}

FunctionPtr with_inputs(Function body, std::size_t at, const std::vector<ValueId>& values) {
  std::vector<ValueId> renamed(body.values.size());
  std::iota(renamed.begin(), renamed.end(), ValueId{0});
  const std::vector<ValueId> inputs = add_inputs(body, at, body, values);
  for (std::size_t i = 0; i < values.size(); ++i) renamed[values[i]] = inputs[i];
  for (Equation& equation : body.equations) {
    for (ValueId& id : equation.operands) id = renamed[id];
  }
  for (ValueId& id : body.outputs) id = renamed[id];
  return std::make_shared<const Function>(ir::without_dead_code(std::move(body)));
}

Function hoist_loop_invariants(Function function) {
  const bool has_nested = std::ranges::any_of(function.equations, [](const Equation& equation) {
    return !ir::bodies_of(equation).empty();
  });
  if (!has_nested) return function;
  // Dead code might depend on the round and keep live values in the loop.
  function = ir::without_dead_code(std::move(function));
  ir::Effects effects;
  const auto change = [&](Function f) {
    return with_changed_loops(std::move(f), [&](Equation& loop, Function& around) {
      return shorten(loop, around, effects);
    });
  };
  return change(ir::with_changed_bodies(std::move(function), change));
}

}  // namespace tessera::ops
