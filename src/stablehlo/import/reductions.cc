// Reductions and sorts whose bodies correspond to operations of the IR.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/stablehlo/writer.h"
#include "stablehlo/import/folds.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

Region without_copies(const Region& body) {
  Region result = body;
  std::unordered_map<ValueNumber, ValueNumber> copies;
  const auto source = [&](ValueNumber value) {
    const auto found = copies.find(value);
    return found == copies.end() ? value : found->second;
  };
  result.operations.clear();
  for (const Operation& op : body.operations) {
    const bool is_copy =
        (op.name == "sdy.sharding_constraint" || op.name == "builtin.unrealized_conversion_cast") &&
        op.results.size() == 1 && op.operands.size() == 1;
    if (is_copy) {
      copies[op.results[0]] = source(op.operands[0]);
      continue;
    }
    Operation& kept = result.operations.emplace_back(op);
    for (ValueNumber& operand : kept.operands) operand = source(operand);
  }
  return result;
}

std::string_view joined_by(const Region& body) {
  const Region plain = without_copies(body);
  const std::vector<Operation>& steps = plain.operations;
  if (steps.size() != 2 || plain.arguments.size() != 2) return {};
  const std::vector<ValueNumber> turned = {plain.arguments[1], plain.arguments[0]};
  const std::string_view kind = kind_of(steps[0]);
  const bool is_turned = steps[0].operands == turned && kind != "subtract";
  const bool is_join = steps[0].results.size() == 1 && steps[1].operands == steps[0].results &&
                       (steps[0].operands == plain.arguments || is_turned);
  return is_join ? kind : std::string_view();
}

double neutral_of(std::string_view join, DType dtype) {
  if (join == "and" || join == "mul") return 1;
  if (join == "max") return ops::hlo::identity_of("maximum", dtype);
  if (join == "min") return ops::hlo::identity_of("minimum", dtype);
  return 0;
}

namespace {

/// A reduction of the IR, and the operation that joins two values.
struct Reduction {
  std::string_view name;  // reduce_sum
  std::string_view join;  // add
};

std::optional<Reduction> reduction_of(std::string_view kind, DType dtype) {
  const bool is_bool = dtype == DType::boolean;
  if (is_bool && (kind == "and" || kind == "minimum" || kind == "multiply")) {
    return Reduction{"reduce_and", "and"};
  }
  if (is_bool && (kind == "or" || kind == "maximum" || kind == "add")) {
    return Reduction{"reduce_or", "or"};
  }
  if (is_bool) return std::nullopt;
  if (kind == "add") return Reduction{"reduce_sum", "add"};
  if (kind == "multiply") return Reduction{"reduce_prod", "mul"};
  if (kind == "maximum") return Reduction{"reduce_max", "max"};
  if (kind == "minimum") return Reduction{"reduce_min", "min"};
  return std::nullopt;
}

ValueId reduced(Context& c, ValueId x, ValueId first, const Region& body, const Ints& dims) {
  const auto reduction = reduction_of(joined_by(body), c.type(x).dtype);
  if (!reduction) return reduced_by_body(c, {x}, {first}, body, dims)[0];
  return with_first(c, reduced_with(c, x, body, dims), first, reduction->join);
}

bool counts_along(const ir::Function& function, ValueId value, std::int64_t dim) {
  for (const ir::Equation& equation : function.equations) {
    if (std::ranges::find(equation.results, value) == equation.results.end()) continue;
    const std::string_view name = ir::op_name(*equation.op);
    if (name == "iota") return equation.attributes.integer("dim") == dim;
    if (name == "sharding_constraint") return counts_along(function, equation.operands[0], dim);
    if (name != "broadcast_in_dim") return false;
    const Ints& dims = equation.attributes.ints("dims");
    const auto found = std::ranges::find(dims, dim);
    return found != dims.end() &&
           counts_along(function, equation.operands[0], found - dims.begin());
  }
  return false;
}

/// JAX's argmax and argmin: the greater element wins, then NaN, then the lower position.
std::string_view extremum_of(const Region& body) {
  std::string_view result;
  int selects = 0;
  for (const Operation& op : body.operations) {
    const std::string_view kind = kind_of(op);
    if (kind == "select") ++selects;
    if (kind == "return" || kind == "or" || kind == "and" || kind == "select") continue;
    if (kind != "compare") return {};
    const std::vector<ValueNumber> elements = {body.arguments[0], body.arguments[2]};
    const std::string_view direction = text_of(op, "comparison_direction");
    if (op.operands == elements && direction == "GT") result = "max";
    if (op.operands == elements && direction == "LT") result = "min";
  }
  return selects == 2 ? result : std::string_view();
}

Values reduce(Context& c) {
  const Ints dims = c.ints("dimensions");
  const Region body = without_copies(c.region(0));
  if (c.operands.size() == 2) return {reduced(c, c.operand(0), c.operand(1), body, dims)};
  const bool is_pair = c.operands.size() == 4 && body.arguments.size() == 4 && dims.size() == 1;
  const std::string_view extremum = is_pair ? extremum_of(body) : std::string_view();
  if (extremum.empty() || !counts_along(c.b().function(), c.operand(1), dims[0])) {
    const std::size_t count = c.operands.size() / 2;
    c.need(count > 0 && 2 * count == c.operands.size(), "operands without initial values");
    const auto middle = c.operands.begin() + static_cast<std::ptrdiff_t>(count);
    return reduced_by_body(c, {c.operands.begin(), middle}, {middle, c.operands.end()}, body, dims);
  }
  const std::string suffix(extremum);
  ValueId x = c.operand(0);
  const bool is_bool = c.type(x).dtype == DType::boolean;
  if (is_bool) x = ops::convert(c.b(), x, DType::i32);
  const ValueId place = c.b().emit("arg" + suffix, {{"dim", dims[0]}}, {x});
  const ValueId value = c.b().emit("reduce_" + suffix, {{"dims", dims}}, {x});
  return {ops::convert(c.b(), value, c.result().dtype),
          ops::convert(c.b(), place, c.result(1).dtype)};
}

/// Finds the operands by which a sort compares: elements of the first ascend; where they are equal,
/// elements of the second ascend, and so on.
class Comparator {
 public:
  explicit Comparator(const Region& region) : region_(region) {
    for (std::size_t i = 0; i < region.arguments.size(); ++i) sources_[region.arguments[i]] = i;
    for (const Operation& op : region.operations) {
      // Selects make all zeros equal and all NaNs equal before the comparison.
      if (kind_of(op) != "select" || op.results.size() != 1) continue;
      for (const ValueNumber operand : op.operands) {
        const auto source = sources_.find(operand);
        if (source != sources_.end()) sources_[op.results[0]] = source->second;
      }
    }
  }

  /// Empty if the sort compares in another way.
  std::vector<std::size_t> keys() const {
    if (region_.operations.empty() || region_.operations.back().operands.size() != 1) return {};
    std::vector<std::size_t> result;
    ValueNumber verdict = region_.operations.back().operands[0];
    while (true) {
      const Operation* op = maker_of(region_, verdict);
      if (op == nullptr || op->operands.size() != 2) return {};
      if (const auto key = compared(*op, "LT")) {
        result.push_back(*key);
        return result;
      }
      // less(first) or (equal(first) and rest)
      const Operation* less = maker_of(region_, op->operands[0]);
      const Operation* tie = maker_of(region_, op->operands[1]);
      if (kind_of(*op) != "or" || less == nullptr || tie == nullptr || kind_of(*tie) != "and" ||
          tie->operands.size() != 2) {
        return {};
      }
      const Operation* equal = maker_of(region_, tie->operands[0]);
      const auto key = compared(*less, "LT");
      if (!key || equal == nullptr || compared(*equal, "EQ") != key) return {};
      result.push_back(*key);
      verdict = tie->operands[1];
    }
  }

 private:
  /// The operand whose two elements it compares.
  std::optional<std::size_t> compared(const Operation& op, std::string_view direction) const {
    if (kind_of(op) != "compare" || op.operands.size() != 2 ||
        text_of(op, "comparison_direction") != direction) {
      return std::nullopt;
    }
    const auto left = sources_.find(op.operands[0]);
    const auto right = sources_.find(op.operands[1]);
    if (left == sources_.end() || right == sources_.end() || left->second % 2 != 0 ||
        right->second != left->second + 1) {
      return std::nullopt;
    }
    return left->second / 2;
  }

  const Region& region_;
  std::unordered_map<ValueNumber, std::size_t> sources_;
};

/// Sorts are stable, so sorting by the last key first sorts by all.
Values sort(Context& c) {
  const Region body = without_copies(c.region(0));
  const std::vector<std::size_t> keys = Comparator(body).keys();
  if (keys.empty()) c.unsupported("a custom comparator");
  Values results = c.operands;
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    c.need(*key < results.size(), "a comparator with more operands than the sort");
    Values order = results;
    std::swap(order[0], order[*key]);
    results = ops::sort(c.b(), order, c.integer("dimension"));
    std::swap(results[0], results[*key]);
  }
  return results;
}

}  // namespace

Values approx_top_k(Context& c) {
  ir::Builder& b = c.b();
  const Type result = c.result();
  const std::int64_t dim = setting_of(c, "reduction_dim");
  c.need(c.operands.size() == 4 && c.op.results.size() == 2, "several arrays at once");
  c.need(dim >= 0 && dim < result.rank() && counts_along(b.function(), c.operand(1), dim),
         "indices that do not count along the dimension");
  const Attribute& called = c.attribute("called_computations");
  const auto& functions = c.frame.context().functions;
  const auto found =
      called.items.size() == 1 ? functions.find(called.items[0]->text) : functions.end();
  c.need(found != functions.end(), "no comparator");
  const Region body = without_copies(found->second->regions[0]);
  c.need(body.operations.size() == 2 && body.arguments.size() == 4 &&
             kind_of(body.operations[0]) == "compare" &&
             body.operations[0].operands ==
                 std::vector<ValueNumber>{body.arguments[0], body.arguments[1]},
         "a custom comparator");
  const std::string_view direction = text_of(body.operations[0], "comparison_direction");
  c.need(direction == "GT" || direction == "LT", "a custom comparator");
  const bool is_least = direction == "LT";
  const ValueId x = is_least ? ops::neg(b, c.operand(0)) : c.operand(0);
  Values results =
      b.emit_all("top_k", {{"dim", dim}, {"k", result.shape[static_cast<std::size_t>(dim)]}}, {x});
  if (is_least) results[0] = ops::neg(b, results[0]);
  return {results[0], ops::convert(b, results[1], c.result(1).dtype)};
}

bool is_neutral(const Context& c, ValueId first, std::string_view join) {
  const auto splat = c.frame.splats.find(first);
  return splat != c.frame.splats.end() && splat->second == neutral_of(join, c.type(first).dtype);
}

ValueId with_first(Context& c, ValueId result, ValueId first, std::string_view join) {
  if (is_neutral(c, first, join)) return result;
  const Type type = c.type(result);
  const ValueId one = ops::convert(c.b(), first, type.dtype);
  return c.b().emit(join, {}, {result, ops::broadcast_scalar(c.b(), one, type.shape)});
}

namespace {

/// The array without the dimensions `dims`, if these have size 1.
std::optional<ValueId> of_one_each(Context& c, ValueId x, const Ints& dims) {
  const Shape& shape = c.type(x).shape;
  Shape left;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (std::ranges::find(dims, static_cast<std::int64_t>(i)) == dims.end()) {
      left.push_back(shape[i]);
    } else if (shape[i] != 1) {
      return std::nullopt;
    }
  }
  return ops::reshape(c.b(), x, left);
}

}  // namespace

ValueId reduced_with(Context& c, ValueId x, const Region& body, const Ints& dims) {
  const DType dtype = c.type(x).dtype;
  const std::optional<Reduction> reduction = reduction_of(joined_by(body), dtype);
  if (!reduction) return reduced_by_body(c, {x}, {}, body, dims)[0];
  if (const std::optional<ValueId> same = of_one_each(c, x, dims)) {
    // A sum begins at +0, which changes -0.
    return reduction->join == "add" ? ops::add(c.b(), *same, ops::full_like(c.b(), 0, *same))
                                    : *same;
  }
  const bool is_sum = reduction->join == "add" || reduction->join == "mul";
  const ValueId wide = is_sum ? ops::convert(c.b(), x, ops::sum_dtype(dtype)) : x;
  const ValueId result = c.b().emit(reduction->name, {{"dims", dims}}, {wide});
  return ops::convert(c.b(), result, dtype);
}

const Handlers& reduction_handlers() {
  static const Handlers kHandlers = {{"reduce", reduce}, {"sort", sort}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
