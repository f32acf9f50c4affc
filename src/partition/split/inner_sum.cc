// Exact sums whose second reduced dimension is split.
//
// The summation tree adds up the grains of the second dimension for each grain of the first one. So
// the sums of the first dimension's grains are kept apart until the devices have added up their
// shares of each; then they are added in the order of the tree. This sends one result per such
// grain, which is often less than sending the operands.
#include <algorithm>
#include <bit>

#include "base/leaf_tree.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "partition/split/sharded_builder.h"
#include "partition/split/splitter.h"

namespace tessera::partition {

using ir::Builder;
using ir::Ints;

namespace {

/// The most grains whose sums are kept apart. Each is a separate equation when they are added.
constexpr std::int64_t kMostKept = 64;

Ints shifted_behind(Ints dims, std::int64_t dim) {
  for (std::int64_t& d : dims) d += d > dim ? 1 : 0;
  return dims;
}

/// `dims` after a dimension that is not reduced has been inserted before `dim`.
Ints reduced_behind(Ints dims, std::int64_t dim) {
  for (std::int64_t& d : dims) d += d >= dim ? 1 : 0;
  return dims;
}

bool is_sum_in_its_own_type(const Function& function, const Equation& equation) {
  const bool is_sum = equation.op == &ops::dot_general_op || equation.op == &ops::reduce_sum_op;
  if (!is_sum || equation.attributes.has(ops::kGrains)) return false;
  const DType dtype = function.type(equation.results[0]).dtype;
  return (dtype == DType::f32 || dtype == DType::f64) &&
         dtype == ops::sum_dtype(function.type(equation.operands[0]).dtype);
}

/// The reduced dimensions of an operand, in the order of the sum.
const Ints& reduced_dims(const Equation& equation, std::size_t operand) {
  if (equation.op == &ops::reduce_sum_op) return equation.attributes.ints("dims");
  return equation.attributes.ints(operand == 0 ? "lhs_contract" : "rhs_contract");
}

}  // namespace

struct Splitter::InnerSum {
  std::size_t outer, inner;       // positions in the list of reduced dimensions
  Ints grains;                    // of all reduced dimensions
  std::int64_t size, kept;        // of the outer dimension; how many of its grains have terms
  std::size_t dim;                // of the kept grains in their sums
  Assignment assignment = {};     // of the factors of the equation
  Sharding made = {}, stop = {};  // of the sums: while partial, and when they are added
  Sharding result = {};           // of the summands: `stop` without the kept grains
  Type type = {};                 // of the sums
};

/// The second dimension must come after the first one that is cut, and its shards must consist of
/// whole grains of equal size.
std::optional<Splitter::InnerSum> Splitter::find_inner_sum(std::size_t index) const {
  const Equation& equation = function_.equations[index];
  const EquationFactors& factors = factors_at(index);
  if (factors.is_order_free || !is_sum_in_its_own_type(function_, equation)) return std::nullopt;
  const std::vector<int>& reduced = factors.rule.reduced;
  Shape sizes;
  for (int factor : reduced) {
    sizes.push_back(factors.rule.factors[static_cast<std::size_t>(factor)].size);
  }
  InnerSum sum{.outer = 0,
               .inner = 0,
               .grains = leaf_counts(sizes, function_.grains),
               .size = 0,
               .kept = 0,
               .dim = 0};
  const auto is_cut = [&](std::size_t i) { return sizes[i] > 1; };
  while (sum.outer < sizes.size() && !is_cut(sum.outer)) ++sum.outer;
  sum.inner = sum.outer + 1;
  while (sum.inner < sizes.size() && !is_cut(sum.inner)) ++sum.inner;
  if (sum.inner >= sizes.size()) return std::nullopt;
  sum.size = sizes[sum.outer];
  const std::int64_t count = sum.grains[sum.outer];
  if (sum.size > count && sum.size % count != 0) return std::nullopt;
  sum.kept = std::min(sum.size, count);
  if (sum.kept > kMostKept || sizes[sum.inner] % sum.grains[sum.inner] != 0) return std::nullopt;
  if (equation.op == &ops::reduce_sum_op) {
    const std::int64_t first = reduced_dims(equation, 0)[sum.outer];
    for (std::int64_t d = 0; d < first; ++d) {
      if (!ops::contains_dim(reduced_dims(equation, 0), d)) ++sum.dim;
    }
  }
  sum.type = function_.type(equation.results[0]);
  sum.type.shape.insert(sum.type.shape.begin() + static_cast<std::ptrdiff_t>(sum.dim), sum.kept);
  return sum;
}

/// The legal part of `raw` if the second reduced dimension may be split; nullopt if it is not
/// split.
std::optional<Assignment> Splitter::split_inside(std::size_t index, const InnerSum& sum,
                                                 Assignment raw) const {
  const EquationFactors& factors = factors_at(index);
  const std::vector<Atom>& atoms = planner_.atoms();
  const auto outer = static_cast<std::size_t>(factors.rule.reduced[sum.outer]);
  const int inner = factors.rule.reduced[sum.inner];
  const AtomList wanted = std::exchange(raw[static_cast<std::size_t>(inner)], {});
  legalise(factors, atoms, function_.grains, raw);
  while (sum.kept % tessera::num_shards(atoms, raw[outer]) != 0) raw[outer].pop_back();
  AtomList list;
  for (AtomId atom : wanted) {
    if (uses_atom(raw, atom)) break;
    list.push_back(atom);
    if (sum.grains[sum.inner] % tessera::num_shards(atoms, list) == 0) continue;
    list.pop_back();
    break;
  }
  if (list.empty() || splittable_prefix(factors, inner, atoms, list) != list.size()) {
    return std::nullopt;
  }
  raw[static_cast<std::size_t>(inner)] = std::move(list);
  return raw;
}

/// Chooses where the kept sums are added: in the wanted sharding, or with a dimension of the result
/// split between the devices that share them.
void Splitter::set_stop(const Sharding& wanted, InnerSum& sum) {
  Type result = sum.type;
  const auto at = static_cast<std::ptrdiff_t>(sum.dim);
  result.shape.erase(result.shape.begin() + at);
  Sharding base = sum.made;
  base.dims.erase(base.dims.begin() + at);
  base.partial.clear();
  AtomList shared = sum.made.dims[sum.dim];
  shared.insert(shared.end(), sum.made.partial.begin(), sum.made.partial.end());
  std::vector<Sharding> stops = {wanted, base};
  for (const Sharding& start : {wanted, base}) {
    for (std::size_t dim = 0; dim < result.shape.size(); ++dim) {
      Sharding split = start;
      for (AtomId atom : shared) {
        if (!uses_atom(split, atom)) split.dims[dim].push_back(atom);
      }
      if (tessera::num_shards(planner_.atoms(), split.dims[dim]) > result.shape[dim]) continue;
      stops.push_back(std::move(split));
    }
  }
  double least = std::numeric_limits<double>::infinity();
  for (const Sharding& stop : stops) {
    Sharding before = stop;
    before.dims.insert(before.dims.begin() + at, AtomList());
    const double cost =
        planner_.plan(sum.type, sum.made, before).cost + planner_.plan(result, stop, wanted).cost;
    if (cost >= least) continue;
    least = cost;
    sum.stop = before;
    sum.result = stop;
  }
}

void Splitter::set_assignment(std::size_t index, Assignment assignment, InnerSum& sum) {
  const EquationFactors& factors = factors_at(index);
  const auto outer = static_cast<std::size_t>(factors.rule.reduced[sum.outer]);
  const auto inner = static_cast<std::size_t>(factors.rule.reduced[sum.inner]);
  sum.assignment = std::move(assignment);
  sum.made = back_project(factors.rule.results[0], sum.assignment);
  sum.made.dims.insert(sum.made.dims.begin() + static_cast<std::ptrdiff_t>(sum.dim),
                       sum.assignment[outer]);
  sum.made.partial = sum.assignment[inner];
  set_stop(wanted(function_.equations[index].results[0]), sum);
}

double Splitter::price_of(std::size_t index, const InnerSum& sum) {
  const Equation& equation = function_.equations[index];
  const ValueId result = equation.results[0];
  double price = planner_.plan(sum.type, sum.made, sum.stop).cost +
                 planner_.plan(function_.type(result), sum.result, wanted(result)).cost;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ValueId id = equation.operands[i];
    if (is_constant(id)) continue;
    price += cost_of_operand(id, needed_of(factors_at(index), i, planner_.atoms(), sum.assignment));
  }
  double adds = static_cast<double>(num_elements(sum.type.shape));
  for (const AtomList& list : sum.stop.dims) {
    adds /= static_cast<double>(tessera::num_shards(planner_.atoms(), list));
  }
  const double work =
      work_of(function_, equation) / split_between(planner_.atoms(), sum.assignment);
  return price + (work + adds) / kFlopsPerByte;
}

/// Returns false if the sum has no second dimension to split, or if `chosen` is cheaper.
bool Splitter::sum_by_grains(std::size_t index, const Assignment& chosen) {
  std::optional<InnerSum> sum = find_inner_sum(index);
  if (!sum) return false;
  const CandidateContext context{factors_at(index), planner_.atoms(), function_.grains};
  double least = price_of(index, chosen);
  std::optional<InnerSum> best;
  for (Assignment& raw : merge_each(context, views(index))) {
    std::optional<Assignment> assignment = split_inside(index, *sum, std::move(raw));
    if (!assignment) continue;
    set_assignment(index, *std::move(assignment), *sum);
    const double price = price_of(index, *sum);
    if (price >= least) continue;
    least = price;
    best = sum;
  }
  if (!best) return false;
  const Equation& equation = function_.equations[index];
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const Sharding needed = needed_of(factors_at(index), i, planner_.atoms(), best->assignment);
    operands.push_back(in_windows(equation.operands[i], needed, equation.span));
  }
  ValueId value = emit_grains(equation, *best, std::move(operands));
  value = follow(value, planner_.plan(best->type, best->made, best->stop), false,
                 name(ops::Reduction::sum), equation.span);
  value = add_grains(*best, value, equation.span);
  const ValueId result = equation.results[0];
  value = follow(value, planner_.plan(function_.type(result), best->result, wanted(result)), false,
                 {}, equation.span);
  versions_[result] = {value};
  return true;
}

/// Emits the equation for each kept grain of the outer dimension; the grains become a dimension of
/// the result.
ValueId Splitter::emit_grains(const Equation& equation, const InnerSum& sum,
                              std::vector<ValueId> operands) {
  ShardedBuilder emit_with(out_, equation.span);
  ir::Attributes attributes = equation.attributes;
  Ints grains = sum.grains;
  grains[sum.outer] = 1;
  attributes.set(std::string(ops::kGrains), std::move(grains));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Ints& dims = reduced_dims(equation, i);
    const std::int64_t dim = dims[sum.outer];
    Shape cut = out_.type(operands[i]).shape;
    Sharding sharding = out_.sharding(operands[i]);
    cut[static_cast<std::size_t>(dim)] = sum.size / sum.kept;
    cut.insert(cut.begin() + dim, sum.kept);
    sharding.dims.insert(sharding.dims.begin() + dim + 1, AtomList());
    operands[i] = emit_with(
        sharding, [&](Builder& b) { return ops::reshape(b, operands[i], std::move(cut)); });
    if (equation.op == &ops::reduce_sum_op) {
      attributes.set("dims", reduced_behind(dims, dim));
      continue;
    }
    const std::string side = i == 0 ? "lhs" : "rhs";
    const Ints batch = shifted_behind(equation.attributes.ints(side + "_batch"), dim);
    attributes.set(side + "_batch", ops::with_first(dim, batch));
    attributes.set(side + "_contract", reduced_behind(dims, dim));
  }
  return emit_with(sum.made, [&](Builder& b) {
    return b.emit(*equation.op, std::move(attributes), std::move(operands));
  });
}

/// Adds the sums of the kept grains by the summation tree. Grains without terms are +0.0 in it.
ValueId Splitter::add_grains(const InnerSum& sum, ValueId grains, const Span& span) {
  Type type = sum.type;
  type.shape.erase(type.shape.begin() + static_cast<std::ptrdiff_t>(sum.dim));
  ShardedBuilder emit_with(out_, span);
  const std::int64_t count = sum.grains[sum.outer];
  const auto dim = static_cast<std::int64_t>(sum.dim);
  const auto grain_at = [&](std::int64_t i) {
    const std::int64_t first = leaf_start(i, count, sum.kept);
    if (first == leaf_start(i + 1, count, sum.kept)) {
      return emit_with(sum.result, [&](Builder& b) { return ops::full(b, 0.0, type); });
    }
    const ValueId one = emit_with(
        sum.stop, [&](Builder& b) { return ops::slice_dim(b, grains, dim, first, first + 1); });
    return emit_with(sum.result, [&](Builder& b) { return ops::reshape(b, one, type.shape); });
  };
  const auto add = [&](auto& self, std::int64_t begin, std::int64_t end) -> ValueId {
    if (end - begin == 1) return grain_at(begin);
    const auto half = std::bit_floor(static_cast<std::uint64_t>(end - begin - 1));
    const std::int64_t middle = begin + static_cast<std::int64_t>(half);
    const ValueId left = self(self, begin, middle);
    const ValueId right = self(self, middle, end);
    return emit_with(sum.result, [&](Builder& b) { return ops::add(b, left, right); });
  };
  return add(add, 0, count);
}

}  // namespace tessera::partition
