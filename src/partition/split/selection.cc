// argmax, argmin and top_k along a dimension that is split: each shard selects on its own, and the
// winners of all shards are compared. Shards keep their order, so ties are decided as without a
// mesh.
#include <algorithm>

#include "ops/emit.h"
#include "ops/ops.h"
#include "partition/split/sharded_builder.h"
#include "partition/split/splitter.h"

namespace tessera::partition {

using ir::Builder;

namespace {

bool is_selection(const Equation& equation) {
  return equation.op == &ops::argmax_op || equation.op == &ops::argmin_op ||
         equation.op == &ops::top_k_op;
}

}  // namespace

/// The operand cut into [.., shards, elements of a shard, ..] at the dimension, and what the shards
/// select from it: [.., shards, k, ..].
struct Splitter::Selection {
  std::size_t dim;
  std::int64_t num_shards, k;
  Sharding held;              // of the operand
  Shape cut;                  // of the operand in shards
  Shape selected;             // of the elements that the shards select
  Sharding in_shards;         // of both
  Sharding gathered, result;  // of the selected elements, before and after the shards are joined
};

/// Whether every shard has elements, as a reshape requires.
bool Splitter::has_elements_everywhere(ValueId source) const {
  const Shape& shape = function_.type(source).shape;
  const Sharding& held = layout_of(source);
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (tessera::num_shards(planner_.atoms(), held.dims[dim]) > shape[dim]) return false;
  }
  return true;
}

std::optional<Splitter::Selection> Splitter::find_selection(std::size_t index) const {
  const Equation& equation = function_.equations[index];
  if (!is_selection(equation) || is_constant(equation.operands[0])) return std::nullopt;
  const ValueId source = equation.operands[0];
  const Shape& shape = function_.type(source).shape;
  Selection s{.dim = static_cast<std::size_t>(equation.attributes.integer("dim")),
              .num_shards = 1,
              .k = 1,
              .held = layout_of(source),
              .cut = shape,
              .selected = {},
              .in_shards = {},
              .gathered = {},
              .result = {}};
  if (equation.op == &ops::top_k_op) s.k = equation.attributes.integer("k");
  const AtomList list = s.held.dims[s.dim];
  s.num_shards = tessera::num_shards(planner_.atoms(), list);
  const std::int64_t size = shape[s.dim];
  if (s.num_shards == 1 || size % s.num_shards != 0) return std::nullopt;
  if (s.k < 1 || s.k > size / s.num_shards || !has_elements_everywhere(source)) return std::nullopt;
  const auto at = static_cast<std::ptrdiff_t>(s.dim);
  s.cut[s.dim] = size / s.num_shards;
  s.cut.insert(s.cut.begin() + at, s.num_shards);
  s.selected = s.cut;
  s.selected[s.dim + 1] = s.k;
  s.result = s.held;
  s.result.dims[s.dim].clear();
  s.gathered = s.result;
  s.gathered.dims.insert(s.gathered.dims.begin() + at, AtomList());
  s.in_shards = s.gathered;
  s.in_shards.dims[s.dim] = list;
  return s;
}

double Splitter::price_of(std::size_t index, const Selection& s) {
  const Equation& equation = function_.equations[index];
  const DType dtype = function_.type(equation.operands[0]).dtype;
  double price = work_of(function_, equation) / kFlopsPerByte;
  for (const AtomList& list : s.held.dims) {
    price /= static_cast<double>(tessera::num_shards(planner_.atoms(), list));
  }
  for (DType moved : {dtype, DType::i32}) {
    price += planner_.plan({moved, s.selected}, s.in_shards, s.gathered).cost;
  }
  return price;
}

/// Returns false if moving the operand is cheaper, or if its shards differ in size.
bool Splitter::select_in_shards(std::size_t index, const Assignment& chosen) {
  const std::optional<Selection> found = find_selection(index);
  if (!found || price_of(index, *found) >= price_of(index, chosen)) return false;
  const Selection& s = *found;
  const Equation& equation = function_.equations[index];
  const auto dim = static_cast<std::int64_t>(s.dim);
  const ValueId x = in_sharding(equation.operands[0], s.held, equation.span);
  ShardedBuilder emit_with(out_, equation.span);
  const ValueId shards =
      emit_with(s.in_shards, [&](Builder& b) { return ops::reshape(b, x, s.cut); });
  std::vector<ValueId> best = select_locally(equation, s, shards);
  // Positions in the whole dimension.
  best[1] = emit_with(s.in_shards, [&](Builder& b) {
    const ValueId shard = ops::iota(b, DType::i32, s.selected, dim);
    const ValueId size =
        ops::full(b, static_cast<double>(s.cut[s.dim + 1]), {DType::i32, s.selected});
    return ops::add(b, best[1], ops::mul(b, shard, size));
  });
  Shape joined = s.selected;
  joined.erase(joined.begin() + dim);
  joined[s.dim] = s.num_shards * s.k;
  for (ValueId& id : best) {
    const ReshardPlan& plan = planner_.plan(out_.type(id), s.in_shards, s.gathered);
    id = follow(id, plan, false, {}, equation.span);
    id = emit_with(s.result, [&](Builder& b) { return ops::reshape(b, id, joined); });
  }
  select_finally(equation, s, best);
  return true;
}

/// The values and positions that each shard selects, [.., shards, k, ..].
std::vector<ValueId> Splitter::select_locally(const Equation& equation, const Selection& s,
                                              ValueId shards) {
  const auto dim = static_cast<std::int64_t>(s.dim);
  ShardedBuilder emit_with(out_, equation.span);
  if (equation.op == &ops::top_k_op) {
    return emit_with(s.in_shards, [&](Builder& b) {
      return b.emit_all(*equation.op, {{"dim", dim + 1}, {"k", s.k}}, {shards});
    });
  }
  Sharding lines = s.in_shards;
  lines.dims.erase(lines.dims.begin() + dim + 1);
  const ValueId position = emit_with(lines, [&](Builder& b) {
    return b.emit(*equation.op, {{"dim", dim + 1}}, {shards});
  });
  return emit_with(s.in_shards, [&](Builder& b) {
    const ValueId positions = ops::reshape(b, position, s.selected);
    return std::vector<ValueId>{ops::gather_along(b, shards, positions, dim + 1), positions};
  });
}

/// Selects from `best`, the values and positions [.., shards * k, ..] of all shards.
void Splitter::select_finally(const Equation& equation, const Selection& s,
                              const std::vector<ValueId>& best) {
  const auto dim = static_cast<std::int64_t>(s.dim);
  ShardedBuilder emit_with(out_, equation.span);
  if (equation.op == &ops::top_k_op) {
    const std::vector<ValueId> top = emit_with(s.result, [&](Builder& b) {
      const std::vector<ValueId> found = b.emit_all(*equation.op, equation.attributes, {best[0]});
      return std::vector<ValueId>{found[0], ops::gather_along(b, best[1], found[1], dim)};
    });
    versions_[equation.results[0]] = {top[0]};
    versions_[equation.results[1]] = {top[1]};
    return;
  }
  Sharding line = s.result;
  line.dims.erase(line.dims.begin() + dim);
  const ValueId winner = emit_with(line, [&](Builder& b) {
    return b.emit(*equation.op, {{"dim", dim}}, {best[0]});
  });
  Shape one = out_.type(best[0]).shape;
  one[s.dim] = 1;
  const ValueId position = emit_with(s.result, [&](Builder& b) {
    return ops::gather_along(b, best[1], ops::reshape(b, winner, one), dim);
  });
  versions_[equation.results[0]] = {emit_with(line, [&](Builder& b) {
    return ops::reshape(b, position, function_.type(equation.results[0]).shape);
  })};
}

}  // namespace tessera::partition
