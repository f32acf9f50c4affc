#include "partition/split.h"

#include <algorithm>
#include <limits>

#include <tessera/error.h>

#include "ops/ops.h"
#include "partition/candidates.h"
#include "partition/plan_reshard.h"

namespace tessera::partition {

using ir::Equation;
using ir::Function;
using ir::ValueId;

namespace {

// An operand that moves was laid out that way for its other users: it often has to move back. A
// gradient that is reduced where it arises is also what people expect to see.
constexpr double kOperandWeight = 4;
// A stored weight is gathered once for all its uses, so its first use does not pay for it alone.
constexpr double kLateWeight = 0.25;
// Work per byte that a device of a CPU cluster does in the time that the byte takes.
constexpr double kFlopsPerByte = 16;

constexpr std::size_t kNoEquation = ~std::size_t{0};

class Splitter {
 public:
  Splitter(const Function& function, const Propagated& propagated)
      : function_(function),
        propagated_(propagated),
        planner_(function.mesh),
        versions_(function.values.size()),
        definition_(function.values.size(), kNoEquation),
        is_late_(propagated.is_late) {
    for (std::size_t i = 0; i < function.equations.size(); ++i) {
      for (ValueId id : function.equations[i].results) definition_[id] = i;
    }
    out_.name = function.name;
    out_.mesh = function.mesh;
    out_.grains = function.grains;
  }

  Function run() {
    for (ValueId id : function_.inputs) {
      const ValueId input = add_value(id, propagated_.wanted[id]);
      versions_[id] = {input};
      out_.inputs.push_back(input);
    }
    for (std::size_t i = 0; i < function_.equations.size(); ++i) split_equation(i);
    for (std::size_t i = 0; i < function_.outputs.size(); ++i) set_output(i);
    return ir::without_dead_code(out_);
  }

 private:
  ValueId add_value(ValueId source, Sharding sharding) {
    return out_.add_value({.type = function_.type(source), .sharding = std::move(sharding)});
  }
  bool is_constant(ValueId source) const { return propagated_.is_constant[source]; }

  void split_equation(std::size_t index);
  void set_output(std::size_t index);
  Assignment choose(std::size_t index);
  std::vector<TensorView> views(std::size_t index) const;
  double moved_bytes(std::size_t index, const Assignment& assignment);
  double work(const Equation& equation, const Assignment& assignment) const;
  void apply(std::size_t index, const Assignment& assignment);
  std::vector<ValueId> emit(const Equation& equation, std::vector<ValueId> operands,
                            const std::vector<Sharding>& shardings);

  double cost_to(ValueId source, const Sharding& target);
  ValueId nearest_version(ValueId source, const Sharding& target);
  ValueId in_sharding(ValueId source, const Sharding& target, const Span& span);
  ValueId follow(ValueId value, const ReshardPlan& plan, bool is_order_free,
                 std::string_view reduction, const Span& span);
  ValueId rebuild(ValueId source, const Sharding& target);

  const Function& function_;
  const Propagated& propagated_;
  ReshardPlanner planner_;
  Function out_;
  std::vector<std::vector<ValueId>> versions_;  // per source value: its layouts in out_
  std::vector<std::size_t> definition_;         // per source value: its equation
  std::vector<bool> is_late_;
};

void Splitter::split_equation(std::size_t index) {
  const Equation& equation = function_.equations[index];
  if (is_constant(equation.results[0])) return;  // built where it is used
  if (equation.op == &ops::sharding_constraint_op) {
    const Sharding& asked = equation.attributes.get<Sharding>("sharding");
    versions_[equation.results[0]] = {in_sharding(equation.operands[0], asked, equation.span)};
    return;
  }
  const bool is_view_of_late = equation.operands.size() == 1 && is_late_[equation.operands[0]] &&
                               equation.op->host.kind == ops::HostRule::Kind::view &&
                               num_elements(function_.type(equation.results[0]).shape) <=
                                   num_elements(function_.type(equation.operands[0]).shape);
  is_late_[equation.results[0]] = is_view_of_late;
  apply(index, choose(index));
}

void Splitter::set_output(std::size_t index) {
  const ValueId source = function_.outputs[index];
  const std::optional<Sharding>& asked = propagated_.outputs[index];
  Sharding target = replicated_sharding(function_.type(source).rank());
  if (asked) {
    target = *asked;
  } else if (!is_constant(source)) {
    target = out_.sharding(versions_[source][0]);
  }
  const std::size_t definition = definition_[source];
  const Span span = definition == kNoEquation ? Span() : function_.equations[definition].span;
  out_.outputs.push_back(in_sharding(source, target, span));
}

/// The tensors of an equation as sources of candidates, results first, stored weights last.
std::vector<TensorView> Splitter::views(std::size_t index) const {
  const Equation& equation = function_.equations[index];
  const ops::Factors& rule = propagated_.factors[index].rule;
  std::vector<TensorView> result;
  for (std::size_t i = 0; i < equation.results.size(); ++i) {
    const ValueId id = equation.results[i];
    result.push_back({&rule.results[i], &propagated_.wanted[id], function_.type(id), false});
  }
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ValueId id = equation.operands[i];
    if (is_constant(id)) continue;
    result.push_back(
        {&rule.operands[i], &out_.sharding(versions_[id][0]), function_.type(id), is_late_[id]});
  }
  return result;
}

Assignment Splitter::choose(std::size_t index) {
  const EquationFactors& factors = propagated_.factors[index];
  const std::vector<TensorView> tensors = views(index);
  Assignment unsplit(factors.rule.factors.size());
  if (std::all_of(tensors.begin(), tensors.end(),
                  [](const TensorView& tensor) { return is_replicated(*tensor.sharding); })) {
    return unsplit;
  }
  CandidateContext context{factors, planner_.atoms(), function_.grains};
  Assignment merged = merge_all(context, tensors);
  if (moved_bytes(index, merged) == 0) return merged;
  std::vector<Assignment> candidates = make_candidates(context, tensors);
  candidates.insert(candidates.begin(), std::move(merged));
  candidates.push_back(std::move(unsplit));
  double least = std::numeric_limits<double>::infinity();
  std::size_t best = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double price = moved_bytes(index, candidates[i]) +
                         work(function_.equations[index], candidates[i]) / kFlopsPerByte;
    if (price >= least) continue;
    least = price;
    best = i;
  }
  return std::move(candidates[best]);
}

/// The weighted bytes that operands and results of the equation move if it is split like this.
double Splitter::moved_bytes(std::size_t index, const Assignment& assignment) {
  const Equation& equation = function_.equations[index];
  const EquationFactors& factors = propagated_.factors[index];
  double bytes = 0;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ValueId id = equation.operands[i];
    if (is_constant(id)) continue;
    const Sharding target = back_project(factors.rule.operands[i], assignment);
    bytes += cost_to(id, target) * (is_late_[id] ? kLateWeight : kOperandWeight);
  }
  const AtomList partial = partial_atoms(factors, assignment);
  for (std::size_t i = 0; i < equation.results.size(); ++i) {
    const ValueId id = equation.results[i];
    Sharding made = back_project(factors.rule.results[i], assignment);
    made.partial = partial;
    bytes +=
        planner_.plan(function_.type(id), made, propagated_.wanted[id], factors.is_order_free).cost;
  }
  return bytes;
}

/// Floating point operations per device.
double Splitter::work(const Equation& equation, const Assignment& assignment) const {
  double flops = (*equation.op->cost)(equation.attributes, operand_types(function_, equation),
                                      result_types(function_, equation));
  for (ValueId id : equation.results) {
    flops += static_cast<double>(num_elements(function_.type(id).shape));
  }
  for (const AtomList& list : assignment) {
    flops /= static_cast<double>(num_shards(planner_.atoms(), list));
  }
  return flops;
}

void Splitter::apply(std::size_t index, const Assignment& assignment) {
  const Equation& equation = function_.equations[index];
  const EquationFactors& factors = propagated_.factors[index];
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    operands.push_back(in_sharding(
        equation.operands[i], back_project(factors.rule.operands[i], assignment), equation.span));
  }
  const AtomList partial = partial_atoms(factors, assignment);
  std::vector<Sharding> shardings;
  for (const ops::Factors::Dims& dims : factors.rule.results) {
    shardings.push_back(back_project(dims, assignment));
    shardings.back().partial = partial;
  }
  const std::vector<ValueId> results = emit(equation, std::move(operands), shardings);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ValueId source = equation.results[i];
    ValueId result = results[i];
    if (!partial.empty()) {
      const ReshardPlan& plan = planner_.plan(function_.type(source), shardings[i],
                                              propagated_.wanted[source], factors.is_order_free);
      result =
          follow(result, plan, factors.is_order_free, name(factors.rule.reduction), equation.span);
    }
    versions_[source] = {result};
  }
}

std::vector<ValueId> Splitter::emit(const Equation& equation, std::vector<ValueId> operands,
                                    const std::vector<Sharding>& shardings) {
  Equation copy{.op = equation.op,
                .attributes = equation.attributes,
                .operands = std::move(operands),
                .results = {},
                .span = equation.span};
  for (std::size_t i = 0; i < shardings.size(); ++i) {
    copy.results.push_back(add_value(equation.results[i], shardings[i]));
  }
  out_.equations.push_back(std::move(copy));
  return out_.equations.back().results;
}

/// The version of a value from which the target is cheapest to reach.
ValueId Splitter::nearest_version(ValueId source, const Sharding& target) {
  ValueId best = versions_[source][0];
  double least = std::numeric_limits<double>::infinity();
  for (ValueId id : versions_[source]) {
    const double cost = planner_.plan(function_.type(source), out_.sharding(id), target).cost;
    if (cost < least) {
      least = cost;
      best = id;
    }
  }
  return best;
}

double Splitter::cost_to(ValueId source, const Sharding& target) {
  const Sharding& nearest = out_.sharding(nearest_version(source, target));
  return planner_.plan(function_.type(source), nearest, target).cost;
}

ValueId Splitter::in_sharding(ValueId source, const Sharding& target, const Span& span) {
  if (is_constant(source)) return rebuild(source, target);
  const ValueId nearest = nearest_version(source, target);
  const ReshardPlan& plan = planner_.plan(function_.type(source), out_.sharding(nearest), target);
  if (plan.steps.empty()) return nearest;
  const ValueId moved = follow(nearest, plan, false, {}, span);
  versions_[source].push_back(moved);
  return moved;
}

/// Emits the collectives of a plan.
ValueId Splitter::follow(ValueId value, const ReshardPlan& plan, bool is_order_free,
                         std::string_view reduction, const Span& span) {
  Sharding from = out_.sharding(value);
  for (const ReshardStep& step : plan.steps) {
    require(is_allowed(step.kind, from, step.to, planner_.atoms(), is_order_free),
            "a planned step is one that the collective can do");
    Equation equation{.op = &op_of(step.kind),
                      .attributes = {},
                      .operands = {value},
                      .results = {},
                      .span = span};
    if (is_reducing(step.kind)) equation.attributes.set("reduction", std::string(reduction));
    value = out_.add_value({.type = out_.type(value), .sharding = step.to});
    equation.results = {value};
    out_.equations.push_back(std::move(equation));
    from = step.to;
  }
  return value;
}

/// Builds a constant again in the sharding that a user wants.
ValueId Splitter::rebuild(ValueId source, const Sharding& target) {
  for (ValueId id : versions_[source]) {
    if (out_.sharding(id) == target) return id;
  }
  const std::size_t index = definition_[source];
  const Equation& equation = function_.equations[index];
  const EquationFactors& factors = propagated_.factors[index];
  Assignment assignment(factors.rule.factors.size());
  project(factors, factors.rule.results[0], target, planner_.atoms(), assignment);
  legalise(factors, planner_.atoms(), function_.grains, assignment);
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    operands.push_back(in_sharding(
        equation.operands[i], back_project(factors.rule.operands[i], assignment), equation.span));
  }
  const Sharding made = back_project(factors.rule.results[0], assignment);
  ValueId result = emit(equation, std::move(operands), {made})[0];
  result =
      follow(result, planner_.plan(function_.type(source), made, target), false, {}, equation.span);
  versions_[source].push_back(result);
  return result;
}

}  // namespace

Function split(const Function& function, const Propagated& propagated) {
  return Splitter(function, propagated).run();
}

}  // namespace tessera::partition
