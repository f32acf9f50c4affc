#include "partition/split.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>

#include <tessera/error.h>

#include "ops/control/control.h"
#include "ops/ops.h"
#include "partition/candidates.h"
#include "partition/moves.h"
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

/// How a value goes to windows: by collectives to shards, and from there in one move.
struct WayToWindows {
  Sharding stop;
  Sharding to;
  double stop_cost;
  double halo_cost;
};

/// What stands at the edges of a function.
struct Boundary {
  std::vector<Sharding> inputs;
  std::vector<std::optional<Sharding>> outputs;  // asked for
};

/// What stands at the edges of an equation with bodies, from outside and from inside.
struct ControlEdges {
  std::vector<Sharding> operands;
  std::vector<Sharding> results;
  std::vector<Boundary> bodies;
};

Sharding with_leading_dim(Sharding sharding) {
  sharding.dims.insert(sharding.dims.begin(), AtomList());
  return sharding;
}

Sharding without_leading_dim(Sharding sharding) {
  sharding.dims.erase(sharding.dims.begin());
  return sharding;
}

bool has_distinct_atoms(const Sharding& sharding) {
  AtomList used = used_atoms(sharding);
  std::sort(used.begin(), used.end());
  return std::adjacent_find(used.begin(), used.end()) == used.end();
}

std::vector<std::optional<Sharding>> asked(const std::vector<Sharding>& shardings) {
  return {shardings.begin(), shardings.end()};
}

/// Splits one function, and those nested in it by splitters of their own.
class Splitter {
 public:
  Splitter(const Function& function, const FlatFunction& flat, const Propagated& propagated,
           ReshardPlanner& planner, std::size_t block)
      : function_(function),
        flat_(flat),
        propagated_(propagated),
        block_(flat.blocks[block]),
        planner_(planner),
        out_(ir::empty_like(function)),
        versions_(function.values.size()),
        definition_(function.values.size(), kNoEquation) {
    // Most values are laid out once; room for collectives and constants besides.
    out_.values.reserve(function.values.size() * 3 / 2);
    out_.equations.reserve(function.equations.size() * 3 / 2);
    const auto first = propagated.is_late.begin() + static_cast<std::ptrdiff_t>(block_.first_value);
    is_late_.assign(first, first + static_cast<std::ptrdiff_t>(function.values.size()));
    for (std::size_t i = 0; i < function.equations.size(); ++i) {
      for (ValueId id : function.equations[i].results) definition_[id] = i;
    }
  }

  Function run(const Boundary& boundary) {
    for (std::size_t i = 0; i < function_.inputs.size(); ++i) {
      const ValueId input = add_value(function_.inputs[i], boundary.inputs[i]);
      versions_[function_.inputs[i]] = {input};
      out_.inputs.push_back(input);
    }
    for (std::size_t i = 0; i < function_.equations.size(); ++i) split_equation(i);
    for (std::size_t i = 0; i < function_.outputs.size(); ++i) set_output(i, boundary.outputs[i]);
    return std::move(out_);
  }
  const Sharding& wanted(ValueId id) const { return propagated_.wanted[block_.first_value + id]; }
  bool is_constant(ValueId source) const {
    return propagated_.is_constant[block_.first_value + source];
  }

 private:
  ValueId add_value(ValueId source, Sharding sharding) {
    return out_.add_value({.type = function_.type(source), .sharding = std::move(sharding)});
  }
  const EquationFactors& factors_at(std::size_t index) const {
    return propagated_.factors[block_.first_equation + index];
  }

  void split_equation(std::size_t index);
  void split_barrier(const Equation& equation);
  void inspect(const Equation& equation);
  void split_control(std::size_t index);
  ControlEdges scan_edges(const Equation& equation, const Splitter& body) const;
  ControlEdges while_edges(const Equation& equation, const Splitter& body) const;
  ControlEdges cond_edges(const Equation& equation, const Splitter& branch) const;
  void set_output(std::size_t index, const std::optional<Sharding>& asked);
  Assignment choose(std::size_t index);
  std::vector<TensorView> views(std::size_t index) const;
  double moved_bytes(std::size_t index, const Assignment& assignment);
  double work(const Equation& equation) const;
  double split_between(const Assignment& assignment) const;
  void apply(std::size_t index, const Assignment& assignment);
  std::vector<ValueId> emit(const Equation& equation, std::vector<ValueId> operands,
                            const std::vector<Sharding>& shardings);

  double cost_to(ValueId source, const Sharding& target);
  double cost_of_operand(ValueId source, const Sharding& needed);
  WayToWindows way_to_windows(ValueId source, const Sharding& needed);
  ValueId in_windows(ValueId source, const Sharding& needed, const Span& span);
  ValueId nearest_version(ValueId source, const Sharding& target);
  ValueId in_sharding(ValueId source, const Sharding& target, const Span& span);
  ValueId add_move(MoveKind kind, ValueId value, const Sharding& to, const Span& span);
  ValueId follow(ValueId value, const ReshardPlan& plan, bool is_order_free,
                 std::string_view reduction, const Span& span);
  ValueId rebuild(ValueId source, const Sharding& target);

  const Function& function_;
  const FlatFunction& flat_;
  const Propagated& propagated_;
  const FlatFunction::Block block_;
  ReshardPlanner& planner_;
  Function out_;
  std::vector<std::vector<ValueId>> versions_;        // per source value: its layouts in out_
  std::map<ValueId, std::vector<ValueId>> windowed_;  // the same: those with windows
  std::vector<std::size_t> definition_;               // per source value: its equation
  std::vector<bool> is_late_;
};

void Splitter::split_equation(std::size_t index) {
  const Equation& equation = function_.equations[index];
  if (is_control(equation)) return split_control(index);
  if (equation.op == &ops::optimization_barrier_op) return split_barrier(equation);
  if (is_constant(equation.results[0])) return;  // built where it is used
  if (equation.op == &ops::inspect_sharding_op) return inspect(equation);
  if (equation.op == &ops::sharding_constraint_op) {
    // What is wanted differs from what the equation says in open dimensions only.
    const Sharding& asked = wanted(equation.results[0]);
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

/// Tells how the operand is laid out where it is defined; a constant is laid out for this alone.
void Splitter::inspect(const Equation& equation) {
  const ValueId source = equation.operands[0];
  const Sharding sharding =
      is_constant(source) ? wanted(equation.results[0]) : out_.sharding(versions_[source][0]);
  versions_[equation.results[0]] = {in_sharding(source, sharding, equation.span)};
  is_late_[equation.results[0]] = is_late_[source];
  const auto& watcher = equation.attributes.get<ir::ShardingWatcher>("callback");
  if (watcher.tell != nullptr) (*watcher.tell)(function_.mesh, sharding);
}

/// What is held back stays as it is laid out, and stays stored state if it was.
void Splitter::split_barrier(const Equation& equation) {
  std::vector<ValueId> operands;
  std::vector<Sharding> shardings;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ValueId source = equation.operands[i];
    const ValueId operand =
        is_constant(source) ? rebuild(source, wanted(equation.results[i])) : versions_[source][0];
    operands.push_back(operand);
    shardings.push_back(out_.sharding(operand));
    is_late_[equation.results[i]] = is_late_[source];
  }
  const std::vector<ValueId> results = emit(equation, std::move(operands), shardings);
  for (std::size_t i = 0; i < results.size(); ++i) versions_[equation.results[i]] = {results[i]};
}

/// The body decides how constants, carries and slices are laid out; a scanned dimension is whole.
ControlEdges Splitter::scan_edges(const Equation& equation, const Splitter& body) const {
  const ops::ScanParts parts = ops::scan_parts(equation);
  ControlEdges edges{.operands = {}, .results = {}, .bodies = {{}}};
  Boundary& inside = edges.bodies[0];
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const Sharding& sharding = body.wanted(body.function_.inputs[i]);
    inside.inputs.push_back(sharding);
    edges.operands.push_back(i < parts.first_scanned() ? sharding : with_leading_dim(sharding));
  }
  for (std::size_t i = 0; i < equation.results.size(); ++i) {
    if (i < parts.num_carry) {
      edges.results.push_back(inside.inputs[parts.num_consts + i]);
      inside.outputs.emplace_back(edges.results.back());
      continue;
    }
    const ValueId made = body.function_.outputs[i];
    const Sharding slice = body.is_constant(made) ? without_leading_dim(wanted(equation.results[i]))
                                                  : body.wanted(made);
    inside.outputs.emplace_back(slice);
    edges.results.push_back(with_leading_dim(slice));
  }
  return edges;
}

ControlEdges Splitter::while_edges(const Equation& equation, const Splitter& body) const {
  const auto num_consts = static_cast<std::size_t>(equation.attributes.integer("num_consts"));
  ControlEdges edges;
  for (ValueId id : body.function_.inputs) edges.operands.push_back(body.wanted(id));
  edges.results.assign(edges.operands.begin() + static_cast<std::ptrdiff_t>(num_consts),
                       edges.operands.end());
  edges.bodies = {{.inputs = edges.operands, .outputs = asked(edges.results)},
                  {.inputs = edges.operands, .outputs = {Sharding()}}};
  return edges;
}

/// Operands come as they are: only the branch that runs pays for moving them.
ControlEdges Splitter::cond_edges(const Equation& equation, const Splitter& branch) const {
  ControlEdges edges{.operands = {Sharding()}, .results = {}, .bodies = {}};
  for (std::size_t i = 1; i < equation.operands.size(); ++i) {
    const ValueId source = equation.operands[i];
    edges.operands.push_back(is_constant(source) ? branch.wanted(branch.function_.inputs[i - 1])
                                                 : out_.sharding(versions_[source][0]));
  }
  for (ValueId id : equation.results) edges.results.push_back(wanted(id));
  const Boundary inside{.inputs = {edges.operands.begin() + 1, edges.operands.end()},
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
    splitters.emplace_back(*bodies[i], flat_, propagated_, planner_, block);
  }
  const ControlEdges edges = equation.op == &ops::scan_op    ? scan_edges(equation, splitters[0])
                             : equation.op == &ops::while_op ? while_edges(equation, splitters[0])
                                                             : cond_edges(equation, splitters[0]);
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    operands.push_back(in_sharding(equation.operands[i], edges.operands[i], equation.span));
  }
  std::size_t next = 0;
  ir::Attributes attributes = ir::with_replaced_bodies(equation.attributes, [&](const Function&) {
    const std::size_t i = next++;
    return splitters[i].run(edges.bodies[i]);
  });
  const std::vector<ValueId> results = emit(equation, std::move(operands), edges.results);
  out_.equations.back().attributes = std::move(attributes);
  for (std::size_t i = 0; i < results.size(); ++i) versions_[equation.results[i]] = {results[i]};
}

void Splitter::set_output(std::size_t index, const std::optional<Sharding>& asked) {
  const ValueId source = function_.outputs[index];
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
    result.push_back({&rule.operands[i], &out_.sharding(versions_[id][0]),
                      num_elements(function_.type(id).shape), is_late_[id]});
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
  const double flops = work(function_.equations[index]);
  double least = std::numeric_limits<double>::infinity();
  std::size_t best = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double price =
        moved_bytes(index, candidates[i]) + flops / split_between(candidates[i]) / kFlopsPerByte;
    if (price >= least) continue;
    least = price;
    best = i;
  }
  return std::move(candidates[best]);
}

/// The weighted bytes that operands and results of the equation move if it is split like this.
double Splitter::moved_bytes(std::size_t index, const Assignment& assignment) {
  const Equation& equation = function_.equations[index];
  const EquationFactors& factors = factors_at(index);
  double bytes = 0;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ValueId id = equation.operands[i];
    if (is_constant(id)) continue;
    bytes += cost_of_operand(id, needed_of(factors, i, planner_.atoms(), assignment));
  }
  const AtomList partial = partial_atoms(factors, assignment);
  for (std::size_t i = 0; i < equation.results.size(); ++i) {
    const ValueId id = equation.results[i];
    Sharding made = back_project(factors.rule.results[i], assignment);
    made.partial = partial;
    bytes += planner_.plan(function_.type(id), made, wanted(id), factors.is_order_free).cost;
  }
  return bytes;
}

/// Floating point operations of all devices together.
double Splitter::work(const Equation& equation) const {
  double flops = (*equation.op->cost)(equation.attributes, operand_types(function_, equation),
                                      result_types(function_, equation));
  for (ValueId id : equation.results) {
    flops += static_cast<double>(num_elements(function_.type(id).shape));
  }
  return flops;
}

/// Between how many devices the assignment splits an equation.
double Splitter::split_between(const Assignment& assignment) const {
  double count = 1;
  for (const AtomList& list : assignment) {
    count *= static_cast<double>(num_shards(planner_.atoms(), list));
  }
  return count;
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
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ValueId source = equation.results[i];
    ValueId result = results[i];
    if (!partial.empty()) {
      const ReshardPlan& plan = planner_.plan(function_.type(source), shardings[i], wanted(source),
                                              factors.is_order_free);
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
  double least = std::numeric_limits<double>::infinity();
  for (ValueId id : versions_[source]) {
    least = std::min(least, planner_.plan(function_.type(source), out_.sharding(id), target).cost);
  }
  return least;
}

/// The weighted bytes for having an operand as an equation needs it.
double Splitter::cost_of_operand(ValueId source, const Sharding& needed) {
  const double weight = is_late_[source] ? kLateWeight : kOperandWeight;
  if (needed.windows.empty()) return cost_to(source, needed) * weight;
  const WayToWindows way = way_to_windows(source, needed);
  return way.stop_cost * weight + way.halo_cost;
}

/// What a move from shards to windows costs; nothing where the windows are what is held.
double halo_cost(const Mesh& mesh, const Type& type, const Sharding& from, const Sharding& to) {
  if (from == to) return 0;
  const double bytes =
      static_cast<double>(move_size(MoveKind::halo_exchange, mesh, type, from, to).wire_bytes);
  return bytes == 0 ? kSliceLatency : bytes + kMoveLatency;
}

/// Windows are taken from a layout that the value has, or from one with the same atoms; what else
/// changes is moved before.
WayToWindows Splitter::way_to_windows(ValueId source, const Sharding& needed) {
  const Type& type = function_.type(source);
  Sharding shards = needed;
  shards.windows.clear();
  WayToWindows best{.stop = shards, .to = needed, .stop_cost = 0, .halo_cost = 0};
  double least = std::numeric_limits<double>::infinity();
  const auto price = [&](const Sharding& stop) {
    if (!has_distinct_atoms(stop)) return;
    Sharding to = needed;
    std::erase_if(to.windows, [&](const Window& window) {
      return to.dims[window.dim].empty() && stop.dims[window.dim].empty();
    });
    const double stop_cost = is_constant(source) ? 0 : cost_to(source, stop);
    const double halo = halo_cost(function_.mesh, type, stop, to);
    if (stop_cost + halo >= least) return;
    least = stop_cost + halo;
    best = {.stop = stop, .to = to, .stop_cost = stop_cost, .halo_cost = halo};
  };
  Sharding whole = shards;
  for (const Window& window : needed.windows) whole.dims[window.dim].clear();
  if (is_constant(source)) {
    price(whole);
    return best;
  }
  for (ValueId id : versions_[source]) {
    Sharding stop = whole;
    for (const Window& window : needed.windows) {
      stop.dims[window.dim] = out_.sharding(id).dims[window.dim];
    }
    price(stop);
  }
  price(shards);
  return best;
}

/// The operand as an equation needs it.
ValueId Splitter::in_windows(ValueId source, const Sharding& needed, const Span& span) {
  if (needed.windows.empty()) return in_sharding(source, needed, span);
  const WayToWindows way = way_to_windows(source, needed);
  const ValueId stop = in_sharding(source, way.stop, span);
  if (way.to == way.stop) return stop;
  for (ValueId id : windowed_[source]) {
    if (out_.sharding(id) == way.to) return id;
  }
  const auto kind = kind_to_windows(function_.mesh, function_.type(source), way.stop, way.to);
  require(kind.has_value(), "a stop on the way to windows is one move from them");
  const ValueId moved = add_move(*kind, stop, way.to, span);
  windowed_[source].push_back(moved);
  return moved;
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

/// Builds a constant again in the sharding that a user wants.
ValueId Splitter::rebuild(ValueId source, const Sharding& target) {
  for (ValueId id : versions_[source]) {
    if (out_.sharding(id) == target) return id;
  }
  const std::size_t index = definition_[source];
  const Equation& equation = function_.equations[index];
  const EquationFactors& factors = factors_at(index);
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

Function split(const Function& function, const FlatFunction& flat, const Propagated& propagated) {
  ReshardPlanner planner(function.mesh);
  Splitter splitter(function, flat, propagated, planner, 0);
  Boundary boundary{.inputs = {}, .outputs = propagated.outputs};
  for (ValueId id : function.inputs) boundary.inputs.push_back(splitter.wanted(id));
  return ir::without_dead_code(splitter.run(boundary));
}

}  // namespace tessera::partition
