// Attention whose keys are split into whole leaves.
//
// If queries are whole, each device computes attention to its own keys, and devices exchange
// partial results. With few queries, these are much smaller than the keys. If queries are split
// like the keys, keys and values visit the queries instead: in step s, device i gets those of
// device i XOR s. Partial results then merge in the order of the tree of leaves, with one of them
// waiting per level, and no device ever holds all keys.
#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/emit.h"
#include "ops/ops.h"
#include "partition/split/sharded_builder.h"
#include "partition/split/splitter.h"

namespace tessera::partition {

using ir::Builder;
using ir::Ints;
using ops::AttentionParts;

namespace {

/// A limit, because each part becomes a separate equation when partial results are merged.
constexpr std::int64_t kMostParts = 64;
/// What it costs to hold a byte during an equation, in bytes received.
constexpr double kHeldWeight = 1.0 / 16;

constexpr std::size_t kKeys = 1, kValues = 2;  // operands

/// Whether some query may see some key of its partner in this step.
bool is_step_seen(const KeyWindow& window, const ops::AttentionSizes& s,
                  const AttentionParts& step) {
  const std::int64_t queries = s.queries / step.count;
  const std::int64_t keys = s.keys / step.count;
  for (std::int64_t i = 0; i < step.count; ++i) {
    const PositionRange part = {step.source(i) * keys, (step.source(i) + 1) * keys};
    const PositionRange seen = {window.keys_of(i * queries, s.keys).first,
                                window.keys_of((i + 1) * queries - 1, s.keys).last};
    if (!overlap(seen, part).empty()) return true;
  }
  return false;
}

/// Merges partial results, pushed in order; a power of two of them. Some may be absent.
class PartialTree {
 public:
  template <class Join>
  void push(std::optional<ValueId> partial, const Join& join) {
    stack_.push_back(partial);
    for (std::int64_t n = ++count_; n % 2 == 0; n /= 2) {
      const std::optional<ValueId> right = stack_.back();
      stack_.pop_back();
      std::optional<ValueId>& left = stack_.back();
      if (left && right) {
        left = join(*left, *right);
      } else if (right) {
        left = right;
      }
    }
  }
  ValueId root() const { return *stack_[0]; }

 private:
  std::vector<std::optional<ValueId>> stack_;
  std::int64_t count_ = 0;
};

Sharding without_dim(Sharding sharding, std::size_t dim) {
  sharding.dims.erase(sharding.dims.begin() + static_cast<std::ptrdiff_t>(dim));
  return sharding;
}

}  // namespace

struct Splitter::KeySplit {
  AttentionParts parts;
  ops::AttentionSizes sizes;
  std::vector<std::int64_t> steps;  // the partners whose keys are seen, if queries are split too
  Equation equation;                // attention_parts; `results` is empty
  EquationFactors factors;
  Type partial, output;  // of its result; of all parts together, before the division
  Assignment assignment = {};
  Sharding made = {}, stop = {};  // of partial results: as computed, and when they are merged
  Sharding result = {};           // of the output: `stop` without the parts
};

/// The ways to split keys over the first atoms that split them, without an assignment.
std::vector<Splitter::KeySplit> Splitter::find_key_splits(std::size_t index) const {
  const Equation& equation = function_.equations[index];
  if (!ops::is(equation, ops::attention_op) || is_constant(equation.operands[kKeys])) return {};
  const auto is_gathered_anyway = [&](const Equation& user) {
    const bool is_derivative = ops::is(user, ops::attention_grad_op) ||
                               ops::is(user, ops::attention_grad_q_op) ||
                               ops::is(user, ops::attention_grad_kv_op);
    return is_derivative && user.operands[kKeys] == equation.operands[kKeys];
  };
  if (std::any_of(function_.equations.begin(), function_.equations.end(), is_gathered_anyway)) {
    return {};
  }
  std::vector<Type> types;
  for (ValueId id : equation.operands) types.push_back(function_.type(id));
  const ops::AttentionSizes sizes = ops::attention_sizes(types);
  const AtomList& list = layout_of(equation.operands[kKeys]).dims[sizes.batch.size()];
  std::vector<KeySplit> found;
  for (std::size_t count = 1; count <= list.size(); ++count) {
    const AtomList prefix(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(count));
    const std::int64_t parts = tessera::num_shards(planner_.atoms(), prefix);
    if (parts > kMostParts || num_key_leaves(sizes.keys) % parts != 0 || sizes.keys % parts != 0) {
      break;
    }
    found.push_back(key_split(equation, sizes, {.count = parts}));
    if (sizes.queries == 0 || sizes.queries % parts != 0) continue;
    found.push_back(key_split(equation, sizes, {.count = parts, .partner = 0}));
  }
  return found;
}

Splitter::KeySplit Splitter::key_split(const Equation& equation, const ops::AttentionSizes& sizes,
                                       const AttentionParts& parts) const {
  Function typed;
  typed.numerics = function_.numerics;
  Builder b(typed);
  KeySplit split{.parts = parts,
                 .sizes = sizes,
                 .steps = {},
                 .equation = {.op = &ops::attention_parts_op,
                              .attributes = equation.attributes,
                              .operands = {},
                              .results = {},
                              .span = equation.span},
                 .factors = {},
                 .partial = {},
                 .output = {}};
  split.equation.attributes.set("parts", parts.count);
  split.equation.attributes.set("partner", parts.partner);
  std::vector<ValueId> inputs;
  for (ValueId id : equation.operands) inputs.push_back(b.add_input(function_.type(id)));
  split.partial = typed.type(b.emit(*split.equation.op, split.equation.attributes, inputs));
  split.factors = factors_of(typed, typed.equations[0]);
  split.output = split.partial;
  if (!parts.is_paired()) split.output.shape.erase(split.output.shape.begin());
  for (std::int64_t s = 1; parts.is_paired() && s < parts.count; ++s) {
    const AttentionParts step{.count = parts.count, .partner = s};
    if (is_step_seen(ops::key_window(equation.attributes), sizes, step)) split.steps.push_back(s);
  }
  return split;
}

/// Chooses where partial results are merged: as they are wanted, or with a dimension of the result
/// split between the devices that have them.
void Splitter::set_stop(const Sharding& wanted, KeySplit& split) {
  const Sharding base = without_dim(split.made, 0);
  std::vector<Sharding> stops = {wanted, base};
  for (const Sharding& start : {wanted, base}) {
    for (std::size_t dim = 0; dim + 1 < start.dims.size(); ++dim) {
      Sharding stop = start;
      for (AtomId atom : split.made.dims[0]) {
        if (!uses_atom(stop, atom)) stop.dims[dim].push_back(atom);
      }
      const std::int64_t count = tessera::num_shards(planner_.atoms(), stop.dims[dim]);
      if (count <= split.output.shape[dim]) stops.push_back(std::move(stop));
    }
  }
  double least = std::numeric_limits<double>::infinity();
  for (const Sharding& stop : stops) {
    if (!stop.dims.back().empty()) continue;  // a row is merged as a whole
    Sharding before = stop;
    before.dims.insert(before.dims.begin(), AtomList());
    const double cost = planner_.plan(split.partial, split.made, before).cost +
                        planner_.plan(split.output, stop, wanted).cost;
    if (cost >= least) continue;
    least = cost;
    split.stop = before;
    split.result = stop;
  }
}

double Splitter::held_bytes(const Type& type, const Sharding& sharding) const {
  double bytes = static_cast<double>(size_bytes(type));
  for (const AtomList& list : sharding.dims) {
    bytes /= static_cast<double>(tessera::num_shards(planner_.atoms(), list));
  }
  return bytes;
}

/// The price of what a device holds because operands of the equation are moved.
double Splitter::held_copies(const Equation& equation, const EquationFactors& factors,
                             const Assignment& assignment) {
  double bytes = 0;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ValueId id = equation.operands[i];
    const Sharding needed = needed_of(factors, i, planner_.atoms(), assignment);
    if (is_constant(id) || cost_of_operand(id, needed) == 0) continue;
    bytes += held_bytes(function_.type(id), needed);
  }
  return bytes;
}

/// Bytes moved and held, and work in bytes.
double Splitter::price_of(std::size_t index, const KeySplit& split) {
  const Equation& equation = function_.equations[index];
  double price = kHeldWeight * held_copies(equation, split.factors, split.assignment);
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ValueId id = equation.operands[i];
    const Sharding needed = needed_of(split.factors, i, planner_.atoms(), split.assignment);
    if (!is_constant(id)) price += cost_of_operand(id, needed);
    if (!split.parts.is_paired() || (i != kKeys && i != kValues)) continue;
    const double tile = held_bytes(function_.type(id), needed);
    price += static_cast<double>(split.steps.size()) * (tile + kMoveLatency) + tile * kHeldWeight;
  }
  const ValueId output = equation.results[0];
  price += planner_.plan(split.partial, split.made, split.stop).cost;
  price += planner_.plan(function_.type(output), split.result, wanted(output)).cost;
  // With steps, a partial result waits on each level of the tree.
  const double levels = 1 + std::log2(static_cast<double>(split.parts.count));
  const double partial = held_bytes(split.partial, split.made);
  price +=
      kHeldWeight * (split.parts.is_paired() ? levels * partial
                                             : partial + held_bytes(split.partial, split.stop));
  const double flops = work_of(function_, equation);
  return price + flops / split_between(planner_.atoms(), split.assignment) / kFlopsPerByte;
}

/// The cheapest split of the keys, if it is cheaper than `least`.
std::optional<Splitter::KeySplit> Splitter::cheapest_key_split(std::size_t index, double least) {
  const Equation& equation = function_.equations[index];
  const ValueId output = equation.results[0];
  std::optional<KeySplit> best;
  for (KeySplit& split : find_key_splits(index)) {
    ops::Factors::Dims dims = split.factors.rule.results[0];
    if (!split.parts.is_paired()) dims.erase(dims.begin());
    std::vector<TensorView> tensors = {
        {&dims, &wanted(output), num_elements(function_.type(output).shape), false}};
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      const ValueId id = equation.operands[i];
      if (is_constant(id)) continue;
      tensors.push_back({&split.factors.rule.operands[i], &layout_of(id),
                         num_elements(function_.type(id).shape), is_late_[id]});
    }
    const CandidateContext context{split.factors, planner_.atoms(), function_.grains};
    std::vector<Assignment> candidates = make_candidates(context, tensors);
    candidates.push_back(merge_all(context, tensors));
    for (Assignment& assignment : candidates) {
      split.made = back_project(split.factors.rule.results[0], assignment);
      const std::size_t dim = split.parts.is_paired() ? split.sizes.batch.size() : 0;
      const std::int64_t shards = tessera::num_shards(planner_.atoms(), split.made.dims[dim]);
      if (shards % split.parts.count != 0) continue;
      split.assignment = std::move(assignment);
      split.stop = split.result = split.made;
      if (!split.parts.is_paired()) set_stop(wanted(output), split);
      const double price = price_of(index, split);
      if (price >= least) continue;
      least = price;
      best = split;
    }
  }
  return best;
}

/// Returns false if keys are not split into whole leaves, or if `chosen` is cheaper.
bool Splitter::attend_in_parts(std::size_t index, const Assignment& chosen) {
  const Equation& equation = function_.equations[index];
  if (!ops::is(equation, ops::attention_op)) return false;
  const double least =
      price_of(index, chosen) + kHeldWeight * held_copies(equation, factors_at(index), chosen);
  const std::optional<KeySplit> best = cheapest_key_split(index, least);
  if (!best) return false;
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const Sharding needed = needed_of(best->factors, i, planner_.atoms(), best->assignment);
    operands.push_back(in_windows(equation.operands[i], needed, equation.span));
  }
  finish_attention(
      equation, *best,
      best->parts.is_paired() ? attend_in_steps(*best, operands) : merge_parts(*best, operands));
  return true;
}

/// Keys and values of other devices, one device after another.
ValueId Splitter::attend_in_steps(const KeySplit& split, const std::vector<ValueId>& operands) {
  ShardedBuilder emit_with(out_, split.equation.span);
  const std::int64_t dim = static_cast<std::int64_t>(split.sizes.batch.size());
  const auto of_partner = [&](ValueId x, std::int64_t partner) {
    const Shape shape = out_.type(x).shape;
    const Sharding held = out_.sharding(x);
    Shape cut = shape;
    cut[split.sizes.batch.size()] = split.sizes.keys / split.parts.count;
    cut.insert(cut.begin() + dim, split.parts.count);
    Sharding in_parts = held;
    in_parts.dims.insert(in_parts.dims.begin() + dim + 1, AtomList());
    Ints sources;
    for (std::int64_t i = 0; i < split.parts.count; ++i) sources.push_back(i ^ partner);
    const ValueId moved = emit_with(in_parts, [&](Builder& b) {
      return ops::permute(b, ops::reshape(b, x, cut), dim, sources);
    });
    return emit_with(held, [&](Builder& b) { return ops::reshape(b, moved, shape); });
  };
  const auto step = [&](std::int64_t partner) {
    std::vector<ValueId> inputs = operands;
    for (std::size_t i : {kKeys, kValues}) {
      if (partner != 0) inputs[i] = of_partner(inputs[i], partner);
    }
    ir::Attributes attributes = split.equation.attributes;
    attributes.set("partner", partner);
    return emit_with(split.made, [&](Builder& b) {
      return b.emit(*split.equation.op, std::move(attributes), std::move(inputs));
    });
  };
  PartialTree tree;
  for (std::int64_t partner = 0; partner < split.parts.count; ++partner) {
    const bool is_seen =
        partner == 0 || std::binary_search(split.steps.begin(), split.steps.end(), partner);
    tree.push(is_seen ? std::optional(step(partner)) : std::nullopt, [&](ValueId x, ValueId y) {
      return emit_with(split.made, [&](Builder& b) {
        return b.emit(ops::attention_join_op, {}, {x, y});
      });
    });
  }
  return tree.root();
}

/// The partial results of all parts of the keys, exchanged and merged.
ValueId Splitter::merge_parts(const KeySplit& split, const std::vector<ValueId>& operands) {
  ShardedBuilder emit_with(out_, split.equation.span);
  ValueId all = emit_with(split.made, [&](Builder& b) {
    return b.emit(*split.equation.op, split.equation.attributes, operands);
  });
  all = follow(all, planner_.plan(split.partial, split.made, split.stop), false, {},
               split.equation.span);
  PartialTree tree;
  for (std::int64_t i = 0; i < split.parts.count; ++i) {
    const ValueId one =
        emit_with(split.stop, [&](Builder& b) { return ops::slice_dim(b, all, 0, i, i + 1); });
    const ValueId partial = emit_with(
        split.result, [&](Builder& b) { return ops::reshape(b, one, split.output.shape); });
    tree.push(partial, [&](ValueId x, ValueId y) {
      return emit_with(split.result, [&](Builder& b) {
        return b.emit(ops::attention_join_op, {}, {x, y});
      });
    });
  }
  return tree.root();
}

void Splitter::finish_attention(const Equation& equation, const KeySplit& split, ValueId partial) {
  ShardedBuilder emit_with(out_, split.equation.span);
  const std::vector<ValueId> results = emit_with(split.result, [&](Builder& b) {
    return b.emit_all(ops::attention_finish_op, {}, {partial});
  });
  out_.values[results[1]].sharding = without_dim(split.result, split.result.dims.size() - 1);
  versions_[equation.results[1]] = {results[1]};
  versions_[equation.results[0]] = {emit_with(split.result, [&](Builder& b) {
    return ops::convert(b, results[0], function_.type(equation.results[0]).dtype);
  })};
}

}  // namespace tessera::partition
