#include "partition/split/split.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <utility>

#include <tessera/error.h>

#include "ops/control/mpmd.h"
#include "ops/ops.h"
#include "ops/record.h"
#include "partition/split/splitter.h"

namespace tessera::partition {

using ir::Equation;
using ir::Function;
using ir::ValueId;

namespace {

std::vector<std::optional<Sharding>> asked(const std::vector<Sharding>& shardings) {
  return {shardings.begin(), shardings.end()};
}

/// The operand with the same sharding as the result: the same carry, or the operand that a task
/// overwrites; -1 for none.
int operand_alike(const Equation& equation, const ir::BodyFlow& flow, std::size_t result) {
  if (result < flow.num_carry) return static_cast<int>(flow.first_carry + result);
  return ops::is_task(equation) ? static_cast<int>(equation.attributes.ints("shares")[result]) : -1;
}

}  // namespace

void Splitter::split_equation(std::size_t index) {
  const Equation& equation = function_.equations[index];
  if (is_control(equation)) return split_control(index);
  if (equation.op == &ops::optimization_barrier_op) return split_barrier(equation);
  if (is_constant(equation.results[0])) return;  // built where it is used
  if (equation.op == &ops::inspect_sharding_op) return inspect(equation);
  if (equation.op == &ops::sharding_constraint_op) {
    // The wanted sharding differs from the constraint only in open dimensions.
    const ValueId source = equation.operands[0];
    const bool is_kept =
        asks_nothing(equation) && !equation.attributes.has("group") && !is_constant(source);
    const Sharding asked = is_kept ? layout_of(source) : wanted(equation.results[0]);
    versions_[equation.results[0]] = {in_sharding(source, asked, equation.span)};
    return;
  }
  const bool is_view_of_late = equation.operands.size() == 1 && is_late_[equation.operands[0]] &&
                               ops::is_view(equation) &&
                               num_elements(function_.type(equation.results[0]).shape) <=
                                   num_elements(function_.type(equation.operands[0]).shape);
  is_late_[equation.results[0]] = is_view_of_late;
  if (roll_in_shards(index)) return;
  const std::optional<Deferral> deferral = find_deferral(index);
  const Assignment chosen = choose(index);
  if (deferral && is_worth_it(index, *deferral, chosen)) {
    apply_deferral(index, *deferral);
  } else if (!select_in_shards(index, chosen) && !sum_by_grains(index, chosen) &&
             !attend_in_parts(index, chosen)) {
    apply(index, chosen);
  }
}

/// Reports the sharding of the operand where it is defined. A constant is built just for this.
void Splitter::inspect(const Equation& equation) {
  const ValueId source = equation.operands[0];
  const Sharding sharding = is_constant(source) ? wanted(equation.results[0]) : layout_of(source);
  versions_[equation.results[0]] = {in_sharding(source, sharding, equation.span)};
  is_late_[equation.results[0]] = is_late_[source];
  const auto& watcher = equation.attributes.get<ir::ShardingWatcher>("callback");
  if (watcher.tell == nullptr) return;
  attempt_.reports.push_back(
      [tell = watcher.tell, &mesh = function_.mesh, sharding] { (*tell)(mesh, sharding); });
}

/// A barrier keeps the sharding of its operand; stored state stays stored state.
void Splitter::split_barrier(const Equation& equation) {
  std::vector<ValueId> operands;
  std::vector<Sharding> shardings;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ValueId source = equation.operands[i];
    const ValueId operand = is_constant(source)  ? rebuild(source, wanted(equation.results[i]))
                            : is_pending(source) ? resolve(source, wanted(source))
                                                 : versions_[source][0];
    operands.push_back(operand);
    shardings.push_back(out_.sharding(operand));
    is_late_[equation.results[i]] = is_late_[source];
  }
  const std::vector<ValueId> results = emit(equation, std::move(operands), shardings);
  for (std::size_t i = 0; i < results.size(); ++i) versions_[equation.results[i]] = {results[i]};
}

/// The body decides the shardings of constants, carries and slices. A scanned dimension is whole.
ControlEdges Splitter::body_edges(const Equation& equation, const ir::BodyFlow& flow,
                                  const Splitter& body) const {
  ControlEdges edges;
  Boundary inside;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const Sharding& sharding = body.wanted(body.function_.inputs[i]);
    inside.inputs.push_back(sharding);
    edges.operands.push_back(flow.is_slice(i) ? stack_of(sharding) : sharding);
  }
  for (std::size_t i = 0; i < equation.results.size(); ++i) {
    Sharding made = wanted(equation.results[i]);
    if (const int operand = operand_alike(equation, flow, i); operand >= 0) {
      made = inside.inputs[static_cast<std::size_t>(operand)];
    } else if (flow.is_stack(i)) {
      const ValueId slice = body.function_.outputs[i];
      made = body.is_constant(slice) ? slice_of(made) : body.wanted(slice);
    }
    inside.outputs.emplace_back(made);
    edges.results.push_back(flow.is_stack(i) ? stack_of(std::move(made)) : std::move(made));
  }
  for (std::size_t b = 0; b < bodies_of(equation).size(); ++b) {
    edges.bodies.push_back(inside);
    if (b == flow.condition) edges.bodies.back().outputs = {Sharding()};
  }
  return edges;
}

/// Operands are passed as they are, so that only the branch that runs pays for moving them.
ControlEdges Splitter::branch_edges(const Equation& equation, const ir::BodyFlow& flow,
                                    const Splitter& branch) const {
  const auto num_choosing = static_cast<std::ptrdiff_t>(flow.num_choosing);
  ControlEdges edges;
  edges.operands.resize(flow.num_choosing);
  for (std::size_t i = flow.num_choosing; i < equation.operands.size(); ++i) {
    const ValueId source = equation.operands[i];
    const ValueId input = branch.function_.inputs[i - flow.num_choosing];
    edges.operands.push_back(is_constant(source) ? branch.wanted(input) : layout_of(source));
  }
  for (ValueId id : equation.results) edges.results.push_back(wanted(id));
  const Boundary inside{.inputs = {edges.operands.begin() + num_choosing, edges.operands.end()},
                        .outputs = asked(edges.results)};
  edges.bodies.assign(bodies_of(equation).size(), inside);
  return edges;
}

void Splitter::split_control(std::size_t index) {
  const Equation& equation = function_.equations[index];
  const std::vector<const Function*> bodies = bodies_of(equation);
  std::deque<Splitter> splitters;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    const std::size_t block = flat_.block_of.at({block_.first_equation + index, i});
    splitters.emplace_back(*bodies[i], flat_, propagated_, planner_, attempt_, block);
  }
  const ir::BodyFlow flow = ir::body_flow(equation).value();
  ControlEdges edges = flow.num_choosing > 0 ? branch_edges(equation, flow, splitters[0])
                                             : body_edges(equation, flow, splitters[0]);
  if (!flow.condition) find_sums(equation, flow, splitters[0], edges.bodies[0]);
  std::size_t next = 0;
  ir::Attributes attributes = ir::with_replaced_bodies(equation.attributes, [&](const Function&) {
    const std::size_t i = next++;
    Function body = splitters[i].run(edges.bodies[i]);
    // Carries that have become partial sums do not have the wanted sharding.
    for (const auto& [input, output] : edges.bodies[i].sums) {
      edges.operands[input] = edges.results[output] = body.sharding(body.inputs[input]);
    }
    return body;
  });
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    operands.push_back(in_sharding(equation.operands[i], edges.operands[i], equation.span));
  }
  const std::vector<ValueId> results = emit(equation, std::move(operands), edges.results);
  out_.equations.back().attributes = std::move(attributes);
  for (std::size_t i = 0; i < results.size(); ++i) versions_[equation.results[i]] = {results[i]};
  settle(index);
}

void Splitter::set_output(std::size_t index, const std::optional<Sharding>& asked) {
  const ValueId source = function_.outputs[index];
  Sharding target = replicated_sharding(function_.type(source).rank());
  if (asked) {
    target = *asked;
  } else if (!is_constant(source)) {
    target = layout_of(source);
  }
  const std::size_t definition = definition_[source];
  const Span span = definition == kNoEquation ? Span() : function_.equations[definition].span;
  out_.outputs.push_back(in_sharding(source, target, span));
}

/// The tensors of an equation as sources of candidates, results first, stored weights last.
std::vector<TensorView> Splitter::views(std::size_t index) const {
  const Equation& equation = function_.equations[index];
  const ops::Factors& rule = factors_at(index).rule;
  std::vector<TensorView> result;
  for (std::size_t i = 0; i < equation.results.size(); ++i) {
    const ValueId id = equation.results[i];
    result.push_back(
        {&rule.results[i], &wanted(id), num_elements(function_.type(id).shape), false});
  }
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ValueId id = equation.operands[i];
    if (is_constant(id)) continue;
    result.push_back(
        {&rule.operands[i], &layout_of(id), num_elements(function_.type(id).shape), is_late_[id]});
  }
  return result;
}

Assignment Splitter::choose(std::size_t index) {
  const EquationFactors& factors = factors_at(index);
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
  const std::size_t best = cheapest(index, candidates);
  if (!attempt_.is_contested) {
    const double weight = std::exchange(attempt_.single_weight, kSharedWeight);
    attempt_.is_contested = cheapest(index, candidates) != best;
    attempt_.single_weight = weight;
  }
  return std::move(candidates[best]);
}

std::size_t Splitter::cheapest(std::size_t index, const std::vector<Assignment>& candidates) {
  double least = std::numeric_limits<double>::infinity();
  std::size_t best = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double price = price_of(index, candidates[i]);
    if (price >= least) continue;
    least = price;
    best = i;
  }
  return best;
}

/// Moved bytes, and work in bytes.
double Splitter::price_of(std::size_t index, const Assignment& assignment) {
  const double flops = work_of(function_, function_.equations[index]);
  return moved_bytes(index, assignment) +
         flops / split_between(planner_.atoms(), assignment) / kFlopsPerByte;
}

/// The weighted bytes that operands and results of the equation move if it is split like this.
double Splitter::moved_bytes(std::size_t index, const Assignment& assignment,
                             const Deferral* deferral) {
  const Equation& equation = function_.equations[index];
  const EquationFactors& factors = factors_at(index);
  double bytes = 0;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ValueId id = equation.operands[i];
    if (is_constant(id) || (deferral != nullptr && deferral->has(i))) continue;
    bytes += cost_of_operand(id, needed_of(factors, i, planner_.atoms(), assignment));
  }
  const AtomList partial = partial_of(factors, assignment, deferral);
  for (std::size_t i = 0; i < equation.results.size(); ++i) {
    const ValueId id = equation.results[i];
    Sharding made = back_project(factors.rule.results[i], assignment);
    made.partial = partial;
    bytes += planner_.plan(function_.type(id), made, wanted(id), factors.is_order_free).cost;
  }
  return bytes;
}

void Splitter::apply(std::size_t index, const Assignment& assignment) {
  const Equation& equation = function_.equations[index];
  const EquationFactors& factors = factors_at(index);
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const Sharding needed = needed_of(factors, i, planner_.atoms(), assignment);
    operands.push_back(in_windows(equation.operands[i], needed, equation.span));
  }
  const AtomList partial = partial_atoms(factors, assignment);
  std::vector<Sharding> shardings;
  for (const ops::Factors::Dims& dims : factors.rule.results) {
    shardings.push_back(back_project(dims, assignment));
    shardings.back().partial = partial;
  }
  const std::vector<ValueId> results = emit(equation, std::move(operands), shardings);
  for (std::size_t i = 0; i < results.size(); ++i) versions_[equation.results[i]] = {results[i]};
  settle(index);
}

/// Resolves partial results to the sharding that will be wanted, unless they are deferred to their
/// only user.
void Splitter::settle(std::size_t index) {
  const EquationFactors& factors = factors_at(index);
  for (ValueId source : function_.equations[index].results) {
    if (!is_pending(source)) continue;
    const bool waits = may_wait(function_, factors, source);
    if (waits && users_[source] > 1) resolve(source, wanted(source));
    if (waits) continue;
    const ValueId sum = versions_[source][0];
    const ReshardPlan& plan = planner_.plan(function_.type(source), out_.sharding(sum),
                                            wanted(source), factors.is_order_free);
    versions_[source] = {follow(sum, plan, factors.is_order_free, name(factors.rule.reduction),
                                function_.equations[index].span)};
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
  if (is_pending(source)) return versions_[source][0];
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
  const double moved = cost_of_move(source, target);
  return moved > 0 ? std::min(moved, cost_of_rebuild(source, target)) : moved;
}

double Splitter::cost_of_move(ValueId source, const Sharding& target) {
  double least = std::numeric_limits<double>::infinity();
  for (ValueId id : versions_[source]) {
    const Sharding& sharding = out_.sharding(id);
    least = std::min(
        least, planner_.plan(function_.type(source), sharding, target, is_pending(source)).cost);
  }
  return least;
}

/// The cost of repeating a broadcast with the sharding of the target.
double Splitter::cost_of_rebuild(ValueId source, const Sharding& target) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::size_t index = definition_[source];
  if (index == kNoEquation || !target.partial.empty() || !target.windows.empty()) return kNever;
  const Equation& equation = function_.equations[index];
  if (equation.op != &ops::broadcast_in_dim_op) return kNever;
  const Assignment assignment = assignment_for(index, target);
  const ops::Factors& rule = factors_at(index).rule;
  if (back_project(rule.results[0], assignment) != target) return kNever;
  const Sharding needed = back_project(rule.operands[0], assignment);
  return is_constant(equation.operands[0]) ? 0 : cost_to(equation.operands[0], needed);
}

ValueId Splitter::in_sharding(ValueId source, const Sharding& target, const Span& span) {
  if (is_constant(source)) return rebuild(source, target);
  if (is_pending(source)) return resolve(source, target);
  const ValueId nearest = nearest_version(source, target);
  const ReshardPlan& plan = planner_.plan(function_.type(source), out_.sharding(nearest), target);
  if (plan.steps.empty()) return nearest;
  if (cost_of_rebuild(source, target) < plan.cost) return rebuild(source, target);
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
    value = add_move(step.kind, value, step.to, span);
    if (is_reducing(step.kind)) {
      out_.equations.back().attributes.set("reduction", std::string(reduction));
    }
    from = step.to;
  }
  return value;
}

ValueId Splitter::add_move(MoveKind kind, ValueId value, const Sharding& to, const Span& span) {
  const ValueId result = out_.add_value({.type = out_.type(value), .sharding = to});
  out_.equations.push_back({.op = &op_of(kind),
                            .attributes = {},
                            .operands = {value},
                            .results = {result},
                            .span = span});
  return result;
}

/// How a defining equation is split so that its first result has the target sharding.
Assignment Splitter::assignment_for(std::size_t index, const Sharding& target) const {
  const EquationFactors& factors = factors_at(index);
  Assignment assignment(factors.rule.factors.size());
  project(factors, factors.rule.results[0], target, planner_.atoms(), assignment);
  legalise(factors, planner_.atoms(), function_.grains, assignment);
  return assignment;
}

/// Builds a constant or a broadcast again, in the sharding that a user wants.
ValueId Splitter::rebuild(ValueId source, const Sharding& target) {
  for (ValueId id : versions_[source]) {
    if (out_.sharding(id) == target) return id;
  }
  const std::size_t index = definition_[source];
  const Equation& equation = function_.equations[index];
  const EquationFactors& factors = factors_at(index);
  const Assignment assignment = assignment_for(index, target);
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    Sharding sharding = back_project(factors.rule.operands[i], assignment);
    sharding.partial = target.partial;
    operands.push_back(in_sharding(equation.operands[i], sharding, equation.span));
  }
  require(target.partial.empty() || is_zero(source),
          "only zero can be used as a partial sum of itself");
  Sharding made = back_project(factors.rule.results[0], assignment);
  made.partial = target.partial;
  ValueId result = emit(equation, std::move(operands), {made})[0];
  result =
      follow(result, planner_.plan(function_.type(source), made, target), false, {}, equation.span);
  versions_[source].push_back(result);
  return result;
}

// --- deferred sums, in fast numerics

/// The carries of a scan that start at zero and to which each iteration only adds.
void Splitter::find_sums(const Equation& equation, const ir::BodyFlow& flow, const Splitter& body,
                         Boundary& inside) const {
  if (function_.numerics == Numerics::exact) return;
  for (std::size_t i = 0; i < flow.num_carry; ++i) {
    const std::size_t input = flow.first_carry + i;
    const bool is_sum = is_zero(equation.operands[input]) && body.is_sum(input, i);
    if (is_sum) inside.sums.emplace_back(input, i);
  }
}

std::optional<Deferral> Splitter::find_deferral(std::size_t index) {
  if (function_.numerics == Numerics::exact) return std::nullopt;
  const Equation& equation = function_.equations[index];
  std::vector<SumOperand> operands;
  for (ValueId id : equation.operands) {
    if (is_accumulator_[id] || is_zero(id)) {
      operands.push_back({.is_any = true, .is_accumulator = is_accumulator_[id]});
    } else if (!is_constant(id) && is_pending(id)) {
      operands.push_back({.sum = &out_.sharding(versions_[id][0])});
    } else {
      operands.push_back({});
    }
  }
  const CandidateContext context{factors_at(index), planner_.atoms(), function_.grains};
  std::optional<Deferral> deferral =
      partition::find_deferral(context, linear_groups(function_, equation), operands, views(index));
  // Partial sums are in shards, never in windows.
  const auto reads_windows = [&](std::size_t operand) {
    const Sharding needed =
        needed_of(factors_at(index), operand, planner_.atoms(), deferral->assignment);
    return std::any_of(needed.windows.begin(), needed.windows.end(),
                       [&](const Window& window) { return !needed.dims[window.dim].empty(); });
  };
  if (deferral && std::any_of(deferral->group.begin(), deferral->group.end(), reads_windows)) {
    return std::nullopt;
  }
  return deferral;
}

/// Whether resolving the result moves no more than resolving the operands. Saving elementwise work
/// is no reason to send more.
bool Splitter::is_worth_it(std::size_t index, const Deferral& deferral, const Assignment& chosen) {
  if (deferral.is_accumulating) return true;
  const Equation& equation = function_.equations[index];
  double later = moved_bytes(index, deferral.assignment, &deferral);
  double now = moved_bytes(index, chosen);
  if (!factors_at(index).rule.reduced.empty()) {
    const double flops = work_of(function_, equation) / kFlopsPerByte;
    later += flops / split_between(planner_.atoms(), deferral.assignment);
    now += flops / split_between(planner_.atoms(), chosen);
  }
  return later <= now;
}

void Splitter::apply_deferral(std::size_t index, const Deferral& deferral) {
  const Equation& equation = function_.equations[index];
  const EquationFactors& factors = factors_at(index);
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ValueId id = equation.operands[i];
    if (!deferral.has(i)) {
      const Sharding needed = needed_of(factors, i, planner_.atoms(), deferral.assignment);
      operands.push_back(in_windows(id, needed, equation.span));
      continue;
    }
    Sharding sharding = back_project(factors.rule.operands[i], deferral.assignment);
    sharding.partial = deferral.partial;
    if (is_accumulator_[id]) out_.values[versions_[id][0]].sharding = sharding;
    const bool is_here = !is_constant(id) && out_.sharding(versions_[id][0]) == sharding;
    operands.push_back(is_here ? versions_[id][0] : in_sharding(id, sharding, equation.span));
  }
  Sharding made = back_project(factors.rule.results[0], deferral.assignment);
  made.partial = partial_of(factors, deferral.assignment, &deferral);
  versions_[equation.results[0]] = emit(equation, std::move(operands), {made});
  settle(index);
}

ValueId Splitter::resolve(ValueId source, const Sharding& target) {
  const ValueId sum = versions_[source][0];
  if (out_.sharding(sum) == target) return sum;
  const ReshardPlan& plan =
      planner_.plan(function_.type(source), out_.sharding(sum), target, /*is_order_free=*/true);
  for (std::size_t i = 0; i < plan.steps.size() && is_reducing(plan.steps[i].kind); ++i) {
    early_.push_back(out_.equations.size() + i);
  }
  const Span& span = function_.equations[definition_[source]].span;
  versions_[source] = {follow(sum, plan, true, name(ops::Reduction::sum), span)};
  return versions_[source][0];
}

namespace {

Function split_once(const Function& function, const FlatFunction& flat,
                    const Propagated& propagated, ReshardPlanner& planner, Attempt& attempt) {
  Splitter splitter(function, flat, propagated, planner, attempt, 0);
  Boundary boundary{.inputs = {}, .outputs = propagated.outputs};
  for (ValueId id : function.inputs) boundary.inputs.push_back(splitter.wanted(id));
  return ir::without_dead_code(splitter.run(boundary));
}

}  // namespace

Function split(const Function& function, const FlatFunction& flat, const Propagated& propagated) {
  ReshardPlanner planner(function.mesh);
  Attempt attempt;
  Function best = split_once(function, flat, propagated, planner, attempt);
  if (attempt.is_contested) {
    // Every choice considers only one equation. If an operand has no other reader, moving it may be
    // cheapest now but costly later.
    Attempt cautious{.single_weight = kSharedWeight, .is_contested = true};
    Function other = split_once(function, flat, propagated, planner, cautious);
    if (is_better(price_of_program(other), price_of_program(best))) {
      best = std::move(other);
      attempt = std::move(cautious);
    }
  }
  for (const auto& report : attempt.reports) report();
  return best;
}

}  // namespace tessera::partition
