#include "ir/reach.h"

namespace tessera::ir {

const std::vector<Bits>& Reach::of(const std::shared_ptr<const Function>& function) {
  if (const auto known = known_.find(function.get()); known != known_.end()) {
    return known->second.outputs;
  }
  const std::size_t n = function->inputs.size();
  std::vector<Bits> inputs(n, Bits(n + 1));
  for (std::size_t i = 0; i < n; ++i) inputs[i].add(i);
  const std::vector<Bits> values = this->values(*function, n, inputs);
  std::vector<Bits> outputs;
  for (ValueId id : function->outputs) outputs.push_back(values[id]);
  return known_.emplace(function.get(), Known{function, std::move(outputs)}).first->second.outputs;
}

std::vector<Bits> Reach::values(const Function& function, std::size_t n,
                                const std::vector<Bits>& inputs) {
  std::vector<Bits> values(function.values.size(), Bits(n + 1));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ValueId id = function.inputs[i];
    if (passes(function.type(id))) values[id] = inputs[i];
  }
  for (const Equation& equation : function.equations) {
    std::vector<Bits> results = results_of(equation, n, values);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const ValueId id = equation.results[i];
      if (passes(function.type(id))) values[id] = std::move(results[i]);
    }
  }
  return values;
}

namespace {

/// Marks as sets for a function without inputs: 0 then stands for a source that does not depend on
/// inputs.
std::vector<Bits> as_sets(const std::vector<bool>& marks) {
  std::vector<Bits> sets(marks.size(), Bits(1));
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (marks[i]) sets[i].add(0);
  }
  return sets;
}

std::vector<bool> as_marks(const std::vector<Bits>& sets) {
  std::vector<bool> marks;
  marks.reserve(sets.size());
  for (const Bits& set : sets) marks.push_back(set.has(0));
  return marks;
}

}  // namespace

std::vector<bool> Reach::marked_values(const Function& function, const std::vector<bool>& inputs) {
  return as_marks(values(function, 0, as_sets(inputs)));
}

std::vector<bool> Reach::marked_operands(const Equation& equation, const BodyFlow& flow,
                                         const std::vector<bool>& operands) {
  return as_marks(through(equation, flow, 0, as_sets(operands)).operands);
}

std::vector<bool> Reach::marked_results(const Equation& equation, const BodyFlow& flow,
                                        const std::vector<bool>& operands) {
  return as_marks(through(equation, flow, 0, as_sets(operands)).results);
}

std::vector<Bits> Reach::results_of(const Equation& equation, std::size_t n,
                                    const std::vector<Bits>& values) {
  std::vector<Bits> results(equation.results.size(), Bits(n + 1));
  if (rules_.special && rules_.special(equation, n, values, results)) return results;
  if (const std::optional<BodyFlow> flow = body_flow(equation)) {
    std::vector<Bits> operands;
    for (ValueId id : equation.operands) operands.push_back(values[id]);
    return through(equation, *flow, n, std::move(operands)).results;
  }
  for (Bits& result : results) {
    for (ValueId id : equation.operands) result.unite(values[id]);
  }
  return results;
}

Reach::Through Reach::through(const Equation& equation, const BodyFlow& flow, std::size_t n,
                              std::vector<Bits> operands) {
  const std::vector<std::shared_ptr<const Function>> bodies = shared_bodies_of(equation);
  Through result{.operands = std::move(operands),
                 .results = std::vector<Bits>(equation.results.size(), Bits(n + 1))};
  Bits chooses(n + 1);  // what reaches the choice of a body, or of another iteration
  for (std::size_t i = 0; i < flow.num_choosing; ++i) chooses.unite(result.operands[i]);
  const auto add_reached = [&](Bits& set, const Function& body, const Bits& inputs) {
    for (std::size_t i = 0; i < body.inputs.size(); ++i) {
      if (inputs.has(i)) set.unite(result.operands[flow.operand_of(i)]);
    }
    if (inputs.has(body.inputs.size())) set.add(n);
  };
  for (bool is_stable = false; !is_stable;) {
    is_stable = true;
    for (std::size_t b = 0; b < bodies.size(); ++b) {
      const std::vector<Bits>& outputs = of(bodies[b]);
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        add_reached(b == flow.condition ? chooses : result.results[i], *bodies[b], outputs[i]);
      }
    }
    for (Bits& set : result.results) set.unite(chooses);
    for (std::size_t i = 0; i < flow.num_carry; ++i) {
      if (result.operands[flow.first_carry + i].unite(result.results[i])) is_stable = false;
    }
  }
  for (std::size_t i = 0; i < flow.num_carry; ++i) {
    result.results[i] = result.operands[flow.first_carry + i];
  }
  return result;
}

}  // namespace tessera::ir
