// Dropping what no output needs, in nested functions too.
//
// First a plan is made, from the outermost function inwards. It looks at each body once for each
// set of outputs that is needed of it. Then the bodies that lose something are built again; the
// others stay the same objects.
#include <algorithm>
#include <map>

#include <tessera/error.h>

#include "ir/bodies.h"
#include "ir/effects.h"
#include "ir/reach.h"

namespace tessera::ir {

namespace {

bool are_all(const std::vector<bool>& marks) {
  return std::find(marks.begin(), marks.end(), false) == marks.end();
}

template <typename T>
std::vector<T> marked(const std::vector<T>& items, const std::vector<bool>& marks) {
  std::vector<T> result;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (marks[i]) result.push_back(items[i]);
  }
  return result;
}

/// Whether values have their numbers in order of definition, and none has no definition.
bool is_numbered(const Function& function) {
  ValueId next = 0;
  const auto are_next = [&](const std::vector<ValueId>& ids) {
    return std::all_of(ids.begin(), ids.end(), [&](ValueId id) { return id == next++; });
  };
  return are_next(function.inputs) &&
         std::all_of(function.equations.begin(), function.equations.end(),
                     [&](const Equation& equation) { return are_next(equation.results); }) &&
         next == function.values.size();
}

Function renumbered(Function function) {
  std::vector<Value> values;
  values.reserve(function.values.size());
  std::vector<ValueId> renamed(function.values.size(), kNoValue);
  const auto define = [&](ValueId& id) {
    values.push_back(std::move(function.values[id]));
    renamed[id] = static_cast<ValueId>(values.size() - 1);
    id = renamed[id];
  };
  const auto rename = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) id = renamed[id];
  };
  for (ValueId& id : function.inputs) define(id);
  for (Equation& equation : function.equations) {
    rename(equation.operands);
    for (ValueId& id : equation.results) define(id);
  }
  rename(function.outputs);
  function.values = std::move(values);
  return function;
}

/// What stays of a function for some of its outputs.
struct Plan {
  std::vector<bool> equations;
  std::vector<bool> inputs;  // those that something reads
  bool is_changed = false;   // even if all inputs and outputs stay
  /// For equations whose bodies lose something.
  struct Nested {
    Kept kept;
    std::vector<bool> results;  // needed of all bodies except a condition
    std::vector<std::shared_ptr<const Plan>> bodies;
  };
  std::map<std::size_t, Nested> nested;
};

class DeadCode {
 public:
  std::shared_ptr<const Plan> plan(const Function& function, const std::vector<bool>& outputs,
                                   bool is_outermost = false);
  /// The function as planned, with only the marked inputs and outputs.
  Function built(Function function, const Plan& plan, const std::vector<bool>& inputs,
                 const std::vector<bool>& outputs);

 private:
  std::optional<Plan::Nested> plan_nested(const Equation& equation, const BodyFlow& flow,
                                          std::vector<bool> results, std::vector<bool>& operands);
  void add_needed_carries(const Equation& equation, const BodyFlow& flow,
                          std::vector<bool>& results);
  void build_nested(Equation& equation, const Plan::Nested& nested);
  FunctionPtr built_body(const FunctionPtr& body, const Plan& plan, const std::vector<bool>& inputs,
                         const std::vector<bool>& outputs);

  Reach reach_;
  Effects effects_;
  using Marked = std::pair<const Function*, std::vector<bool>>;
  std::map<Marked, std::shared_ptr<const Plan>> plans_;                // of bodies
  std::map<std::pair<Marked, std::vector<bool>>, FunctionPtr> built_;  // by inputs and outputs
};

std::shared_ptr<const Plan> DeadCode::plan(const Function& function,
                                           const std::vector<bool>& outputs, bool is_outermost) {
  auto plan = std::make_shared<Plan>();
  std::vector<bool> is_needed(function.values.size(), false);
  for (ValueId id : marked(function.outputs, outputs)) is_needed[id] = true;
  plan->equations.assign(function.equations.size(), false);
  for (std::size_t i = function.equations.size(); i-- > 0;) {
    const Equation& equation = function.equations[i];
    const bool has_effect = effects_.has(equation);
    plan->equations[i] = has_effect || (is_outermost && is_in_group(equation)) ||
                         std::any_of(equation.results.begin(), equation.results.end(),
                                     [&](ValueId id) { return is_needed[id]; });
    if (!plan->equations[i]) continue;
    const std::optional<BodyFlow> flow = body_flow(equation);
    if (!flow || has_effect) {
      for (ValueId id : equation.operands) is_needed[id] = true;
      continue;
    }
    std::vector<bool> results;
    for (ValueId id : equation.results) results.push_back(is_needed[id]);
    std::vector<bool> operands(equation.operands.size(), true);
    if (auto nested = plan_nested(equation, *flow, std::move(results), operands)) {
      plan->nested.emplace(i, *std::move(nested));
    }
    for (ValueId id : marked(equation.operands, operands)) is_needed[id] = true;
  }
  for (std::size_t i = 0; i < plan->equations.size(); ++i) {
    const Equation& equation = function.equations[i];
    // In a nested function, a sharding group does not keep inputs: only the outputs decide which
    // inputs stay.
    if (is_inspection(*equation.op) || (is_in_group(equation) && !plan->equations[i])) {
      plan->equations[i] = is_needed[equation.operands[0]];
    }
  }
  for (ValueId id : function.inputs) plan->inputs.push_back(is_needed[id]);
  plan->is_changed = !plan->nested.empty() || !are_all(plan->equations) || !is_numbered(function);
  return plan;
}

/// Marks the operands that the equation needs for these results; nullopt where it stays as it is.
std::optional<Plan::Nested> DeadCode::plan_nested(const Equation& equation, const BodyFlow& flow,
                                                  std::vector<bool> results,
                                                  std::vector<bool>& operands) {
  add_needed_carries(equation, flow, results);
  Plan::Nested nested{.kept = {}, .results = results, .bodies = {}};
  bool is_changed = !are_all(results);
  std::vector<bool> is_read(operands.size(), false);
  const std::vector<const Function*> bodies = bodies_of(equation);
  for (std::size_t b = 0; b < bodies.size(); ++b) {
    const std::vector<bool> outputs = b == flow.condition ? std::vector<bool>{true} : results;
    std::shared_ptr<const Plan>& known = plans_[{bodies[b], outputs}];
    if (known == nullptr) known = plan(*bodies[b], outputs);
    nested.bodies.push_back(known);
    is_changed = is_changed || known->is_changed;
    for (std::size_t i = 0; i < known->inputs.size(); ++i) {
      if (known->inputs[i]) is_read[flow.operand_of(i)] = true;
    }
  }
  for (std::size_t i = flow.num_choosing; i < operands.size(); ++i) {
    // A carry has an operand and a result, or neither.
    operands[i] = flow.is_carry(i) ? results[i - flow.first_carry] : is_read[i];
  }
  if (!is_changed && are_all(operands)) return std::nullopt;
  nested.kept = {.operands = operands, .results = std::move(results)};
  return nested;
}

/// A carry is needed when its result is, or when needed values of an iteration read it.
void DeadCode::add_needed_carries(const Equation& equation, const BodyFlow& flow,
                                  std::vector<bool>& results) {
  const auto first = results.begin();
  if (std::find(first, first + static_cast<std::ptrdiff_t>(flow.num_carry), false) ==
      first + static_cast<std::ptrdiff_t>(flow.num_carry)) {
    return;
  }
  const std::vector<FunctionPtr> bodies = shared_bodies_of(equation);
  const auto add_read = [&](const Bits& inputs, std::vector<std::size_t>& open) {
    for (std::size_t carry = 0; carry < flow.num_carry; ++carry) {
      if (results[carry] || !inputs.has(flow.first_carry + carry - flow.num_choosing)) continue;
      results[carry] = true;
      open.push_back(carry);
    }
  };
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i]) open.push_back(i);
  }
  if (flow.condition) add_read(reach_.of(bodies[*flow.condition])[0], open);
  while (!open.empty()) {
    const std::size_t output = open.back();
    open.pop_back();
    for (std::size_t b = 0; b < bodies.size(); ++b) {
      if (b != flow.condition) add_read(reach_.of(bodies[b])[output], open);
    }
  }
}

Function DeadCode::built(Function function, const Plan& plan, const std::vector<bool>& inputs,
                         const std::vector<bool>& outputs) {
  for (const auto& [index, nested] : plan.nested) build_nested(function.equations[index], nested);
  std::size_t end = 0;
  for (std::size_t i = 0; i < plan.equations.size(); ++i) {
    if (!plan.equations[i]) continue;
    if (end != i) function.equations[end] = std::move(function.equations[i]);
    ++end;
  }
  function.equations.erase(function.equations.begin() + static_cast<std::ptrdiff_t>(end),
                           function.equations.end());
  if (!are_all(inputs)) function.inputs = marked(function.inputs, inputs);
  if (!are_all(outputs)) function.outputs = marked(function.outputs, outputs);
  return is_numbered(function) ? std::move(function) : renumbered(std::move(function));
}

void DeadCode::build_nested(Equation& equation, const Plan::Nested& nested) {
  const BodyFlow flow = body_flow(equation).value();
  const std::vector<bool> inputs(
      nested.kept.operands.begin() + static_cast<std::ptrdiff_t>(flow.num_choosing),
      nested.kept.operands.end());
  std::size_t next = 0;
  const Attributes attributes = kept_attributes(equation, nested.kept);
  equation.attributes = with_bodies(attributes, [&](const FunctionPtr& body) {
    const std::size_t b = next++;
    return built_body(body, *nested.bodies[b], inputs,
                      b == flow.condition ? std::vector<bool>{true} : nested.results);
  });
  equation.operands = marked(equation.operands, nested.kept.operands);
  equation.results = marked(equation.results, nested.kept.results);
}

FunctionPtr DeadCode::built_body(const FunctionPtr& body, const Plan& plan,
                                 const std::vector<bool>& inputs,
                                 const std::vector<bool>& outputs) {
  if (!plan.is_changed && are_all(inputs) && are_all(outputs)) return body;
  FunctionPtr& known = built_[{{body.get(), inputs}, outputs}];
  if (known == nullptr) {
    known = std::make_shared<const Function>(built(*body, plan, inputs, outputs));
  }
  return known;
}

}  // namespace

bool has_dead_code(const Function& function) {
  return DeadCode()
      .plan(function, std::vector<bool>(function.outputs.size(), true), true)
      ->is_changed;
}

Function without_dead_code(Function function) {
  DeadCode dead_code;
  const std::vector<bool> outputs(function.outputs.size(), true);
  const std::shared_ptr<const Plan> plan = dead_code.plan(function, outputs, true);
  if (!plan->is_changed) return function;
  // Plans and built bodies are found by the addresses of the old bodies, so these must stay alive.
  const std::vector<Equation> kept_alive =
      plan->nested.empty() ? std::vector<Equation>() : function.equations;
  const std::vector<bool> inputs(function.inputs.size(), true);
  return dead_code.built(std::move(function), *plan, inputs, outputs);
}

}  // namespace tessera::ir
