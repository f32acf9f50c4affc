// A transpose of elementwise work on constants and broadcasts, such as the product of a column and
// a row, becomes the same work in the transposed order. Its readers can then compute the elements
// where they need them, and no data is moved. The same is done for a transpose of elementwise work
// on a convolution, such as a conversion to bf16: the convolution writes its result in the order of
// the transpose that follows it.
#include <algorithm>
#include <optional>

#include "ops/control/control.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "ops/record.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

constexpr int kMostDeep = 64;  // in a chain of operations

class Transposes {
 public:
  explicit Transposes(const Function& function)
      : f_(function), definition_(f_.values.size(), nullptr), uses_(ir::count_uses(f_)) {
    for (const Equation& equation : f_.equations) {
      for (const ValueId id : equation.results) definition_[id] = &equation;
    }
  }

  bool is_moved(const Equation& equation) const {
    return *equation.op->name == "transpose" &&
           costs_nothing(equation.operands[0], inverse_of(permutation_of(equation)));
  }

  /// The result of a transpose that is moved, with the values of the old function renamed.
  ValueId emit(Builder& b, const Equation& equation, const std::vector<ValueId>& renamed) const {
    return emit(b, equation.operands[0], inverse_of(permutation_of(equation)), renamed);
  }

 private:
  static const Ints& permutation_of(const Equation& equation) {
    return equation.attributes.ints("permutation");
  }

  /// Where `places` moves these dimensions.
  static Ints placed(const Ints& dims, const Ints& places) {
    Ints result;
    for (const std::int64_t dim : dims) result.push_back(places[at(dim)]);
    return result;
  }
  static Shape placed_shape(const Shape& shape, const Ints& places) {
    Shape result(shape.size());
    for (std::size_t i = 0; i < shape.size(); ++i) result[at(places[i])] = shape[i];
    return result;
  }

  /// Whether no data is moved when dimension i of the value becomes dimension places[i].
  bool costs_nothing(ValueId id, const Ints& places, int depth = 0) const {
    const Equation* made = definition_[id];
    if (made == nullptr || depth > kMostDeep) return false;
    if (made->op == &constant_op) return true;
    if (*made->op->host == "conv") {
      const bool keeps_features = places.back() == std::ssize(places) - 1;
      return depth > 0 && uses_[id] == 1 && keeps_features;
    }
    if (made->op == &broadcast_in_dim_op) {
      const Ints dims = placed(made->attributes.ints("dims"), places);
      return std::is_sorted(dims.begin(), dims.end());
    }
    return *made->op->pattern == Pattern::elementwise && uses_[id] == 1 &&
           std::all_of(made->operands.begin(), made->operands.end(),
                       [&](ValueId operand) { return costs_nothing(operand, places, depth + 1); });
  }

  ValueId emit(Builder& b, ValueId id, const Ints& places,
               const std::vector<ValueId>& renamed) const {
    const Equation& made = *definition_[id];
    b.set_span(made.span);
    const Shape shape = placed_shape(f_.type(id).shape, places);
    if (made.op == &constant_op) {
      Attributes attributes = made.attributes;
      attributes.set("shape", shape);
      return b.emit(*made.op, std::move(attributes), {});
    }
    if (*made.op->host == "conv") return transpose(b, renamed[id], inverse_of(places));
    if (made.op == &broadcast_in_dim_op) {
      return broadcast_in_dim(b, renamed[made.operands[0]],
                              placed(made.attributes.ints("dims"), places), shape);
    }
    std::vector<ValueId> operands;
    for (const ValueId operand : made.operands)
      operands.push_back(emit(b, operand, places, renamed));
    b.set_span(made.span);
    return b.emit(*made.op, made.attributes, std::move(operands));
  }

  const Function& f_;
  std::vector<const Equation*> definition_;  // per value
  std::vector<int> uses_;                    // per value
};

/// nullopt if there is nothing to move.
std::optional<Function> moved_once(const Function& function) {
  const Transposes transposes(function);
  const auto is_moved = [&](const Equation& equation) { return transposes.is_moved(equation); };
  if (std::none_of(function.equations.begin(), function.equations.end(), is_moved)) {
    return std::nullopt;
  }
  Function result = ir::empty_like(function);
  Builder b(result);
  std::vector<ValueId> renamed(function.values.size(), ir::kNoValue);
  const auto add = [&](ValueId id) { return renamed[id] = result.add_value(function.values[id]); };
  for (const ValueId id : function.inputs) result.inputs.push_back(add(id));
  for (const Equation& equation : function.equations) {
    if (is_moved(equation)) {
      renamed[equation.results[0]] = transposes.emit(b, equation, renamed);
      continue;
    }
    Equation& copy = result.equations.emplace_back(equation);
    for (ValueId& id : copy.operands) id = renamed[id];
    for (ValueId& id : copy.results) id = add(id);
  }
  for (const ValueId id : function.outputs) result.outputs.push_back(renamed[id]);
  return result;
}

/// Dead equations are dropped after each step, so that their operands have fewer readers.
Function moved_here(Function function) {
  while (auto moved = moved_once(function)) function = ir::without_dead_code(*std::move(moved));
  return function;
}

}  // namespace

Function move_transposes(Function function) {
  return moved_here(ir::with_changed_bodies(std::move(function), moved_here));
}

}  // namespace tessera::ops
