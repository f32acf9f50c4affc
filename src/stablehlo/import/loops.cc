#include "stablehlo/import/loops.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "ops/control/control.h"
#include "ops/emit.h"

namespace tessera::stablehlo {

namespace {

using ir::Equation;
using ir::Ints;
using ir::ValueId;

enum class Order : std::uint8_t { forward, reverse };

/// What an input of the body becomes in the scan.
enum class Role : std::uint8_t { constant, carry, scanned, stacked };

class Body {
 public:
  Body(const CountedLoop& loop, const ir::Function& function) : loop_(loop), function_(function) {
    uses_.resize(function.values.size());
    makers_.resize(function.values.size(), nullptr);
    num_output_uses_.resize(function.values.size(), 0);
    for (const Equation& equation : function.equations) {
      for (const ValueId operand : equation.operands) uses_[operand].push_back(&equation);
      for (const ValueId result : equation.results) makers_[result] = &equation;
    }
    for (const ValueId output : function.outputs) ++num_output_uses_[output];
    for (std::size_t i = 0; i < function.inputs.size(); ++i) roles_.push_back(first_role(i));
    choose_order();
    for (std::size_t i = 0; i < roles_.size(); ++i) {
      if (is_scanned(i)) roles_[i] = Role::scanned;
      if (is_stacked(i)) roles_[i] = Role::stacked;
    }
  }

  std::vector<ValueId> append(ir::Builder& b, const std::vector<ValueId>& operands) const;

 private:
  ValueId output_of(std::size_t input) const { return function_.outputs[input - loop_.num_consts]; }
  bool is_const(std::size_t input) const { return input < loop_.num_consts; }

  Role first_role(std::size_t input) const {
    if (is_const(input)) return Role::constant;
    return output_of(input) == function_.inputs[input] ? Role::constant : Role::carry;
  }

  std::string_view op_of(ValueId value) const {
    return makers_[value] == nullptr ? std::string_view() : ir::op_name(*makers_[value]->op);
  }

  std::optional<double> number(ValueId value) const {
    const auto input = std::ranges::find(function_.inputs, value) - function_.inputs.begin();
    if (input < static_cast<std::ptrdiff_t>(loop_.numbers.size())) {
      return loop_.numbers[static_cast<std::size_t>(input)];
    }
    if (op_of(value) != "constant" || !function_.type(value).shape.empty()) return std::nullopt;
    return makers_[value]->attributes.get<double>("value");
  }

  /// An index of i64 before as_index(), which leaves zero and numbers of iterations as they are.
  ValueId unclamped(ValueId index) const {
    if (op_of(index) != "convert") return index;
    index = makers_[index]->operands[0];
    while (op_of(index) == "min" || op_of(index) == "max") {
      const std::optional<double> bound = number(makers_[index]->operands[1]);
      const bool is_kept =
          bound &&
          (op_of(index) == "min" ? *bound >= static_cast<double>(loop_.length - 1) : *bound <= 0.0);
      if (!is_kept) break;
      index = makers_[index]->operands[0];
    }
    return index;
  }

  /// Whether an index is the number of the iteration, or length - 1 minus it.
  std::optional<Order> order_of(ValueId index) const {
    index = unclamped(index);
    const ValueId counter = function_.inputs[loop_.num_consts + loop_.counter];
    if (index == counter) return Order::forward;
    // (length - counter) - 1, or (length - 1) - counter
    double start = 0;
    while (op_of(index) == "sub") {
      const std::vector<ValueId>& operands = makers_[index]->operands;
      if (operands[1] == counter) {
        const std::optional<double> first = number(operands[0]);
        const bool is_last = first && *first + start == static_cast<double>(loop_.length - 1);
        return is_last ? std::optional(Order::reverse) : std::nullopt;
      }
      const std::optional<double> less = number(operands[1]);
      if (!less) return std::nullopt;
      start -= *less;
      index = operands[0];
    }
    return std::nullopt;
  }

  /// The order in which a dynamic slice, or an update of one, goes through the whole array.
  std::optional<Order> order_of(const Equation& equation) const {
    const bool is_read = ir::op_name(*equation.op) == "dynamic_slice";
    const bool is_write = ir::op_name(*equation.op) == "dynamic_update_slice";
    if (!is_read && !is_write) return std::nullopt;
    const Shape& whole = function_.type(equation.operands[0]).shape;
    Shape slice = whole;
    if (whole.empty() || whole[0] != loop_.length) return std::nullopt;
    slice[0] = 1;
    const Shape& taken =
        is_read ? equation.attributes.ints("sizes") : function_.type(equation.operands[1]).shape;
    if (taken != slice) return std::nullopt;
    const std::size_t first = is_read ? 1 : 2;
    for (std::size_t dim = 1; dim < whole.size(); ++dim) {
      if (number(unclamped(equation.operands[first + dim])) != 0.0) return std::nullopt;
    }
    return order_of(equation.operands[first]);
  }

  void choose_order() {
    for (const Equation& equation : function_.equations) {
      const auto found = std::ranges::find(
          function_.inputs, equation.operands.empty() ? ir::kNoValue : equation.operands[0]);
      if (found == function_.inputs.end()) continue;
      if (const std::optional<Order> order = order_of(equation)) {
        order_ = *order;
        return;
      }
    }
  }

  bool is_scanned(std::size_t input) const {
    if (roles_[input] != Role::constant) return false;
    const ValueId value = function_.inputs[input];
    const std::vector<const Equation*>& uses = uses_[value];
    if (uses.empty() || num_output_uses_[value] != (is_const(input) ? 0 : 1)) return false;
    return std::ranges::all_of(uses, [&](const Equation* use) {
      return ir::op_name(*use->op) == "dynamic_slice" && use->operands[0] == value &&
             std::ranges::count(use->operands, value) == 1 && order_of(*use) == order_;
    });
  }

  bool is_stacked(std::size_t input) const {
    if (roles_[input] != Role::carry) return false;
    const ValueId value = function_.inputs[input];
    const ValueId output = output_of(input);
    if (op_of(output) != "dynamic_update_slice" || uses_[value].size() != 1) return false;
    const Equation* const write = makers_[output];
    return uses_[value][0] == write && write->operands[0] == value &&
           num_output_uses_[value] == 0 && uses_[output].empty() && num_output_uses_[output] == 1 &&
           order_of(*write) == order_;
  }

  std::size_t count(Role role) const {
    return static_cast<std::size_t>(std::ranges::count(roles_, role));
  }
  std::shared_ptr<const ir::Function> scan_body() const;

  const CountedLoop& loop_;
  const ir::Function& function_;
  std::vector<std::vector<const Equation*>> uses_;  // per value
  std::vector<const Equation*> makers_;
  std::vector<int> num_output_uses_;
  std::vector<Role> roles_;  // per input
  Order order_ = Order::forward;
};

std::shared_ptr<const ir::Function> Body::scan_body() const {
  auto result = std::make_shared<ir::Function>(ir::empty_like(function_));
  ir::Builder b(*result);
  std::unordered_map<ValueId, ValueId> values;
  for (const Role role : {Role::constant, Role::carry, Role::scanned}) {
    for (std::size_t i = 0; i < roles_.size(); ++i) {
      if (roles_[i] != role) continue;
      Type type = function_.type(function_.inputs[i]);
      if (role == Role::scanned) type.shape.erase(type.shape.begin());
      values[function_.inputs[i]] = b.add_input(type);
    }
  }
  const auto role_of = [&](ValueId value) {
    const auto found = std::ranges::find(function_.inputs, value);
    return found == function_.inputs.end()
               ? Role::constant
               : roles_[static_cast<std::size_t>(found - function_.inputs.begin())];
  };
  for (const Equation& equation : function_.equations) {
    b.set_span(equation.span);
    const Role role = equation.operands.empty() ? Role::constant : role_of(equation.operands[0]);
    if (role == Role::stacked) continue;
    if (role == Role::scanned) {
      Shape shape = function_.type(equation.results[0]).shape;
      values[equation.results[0]] = ops::reshape(b, values.at(equation.operands[0]), shape);
      continue;
    }
    std::vector<ValueId> operands;
    for (const ValueId operand : equation.operands) operands.push_back(values.at(operand));
    const std::vector<ValueId> made = b.emit_all(*equation.op, equation.attributes, operands);
    for (std::size_t i = 0; i < made.size(); ++i) values[equation.results[i]] = made[i];
  }
  std::vector<ValueId> outputs;
  for (std::size_t i = loop_.num_consts; i < roles_.size(); ++i) {
    if (roles_[i] == Role::carry) outputs.push_back(values.at(output_of(i)));
  }
  for (std::size_t i = loop_.num_consts; i < roles_.size(); ++i) {
    if (roles_[i] != Role::stacked) continue;
    const ValueId update = makers_[output_of(i)]->operands[1];
    Shape shape = function_.type(update).shape;
    shape.erase(shape.begin());
    outputs.push_back(ops::reshape(b, values.at(update), shape));
  }
  b.set_outputs(std::move(outputs));
  return result;
}

std::vector<ValueId> Body::append(ir::Builder& b, const std::vector<ValueId>& operands) const {
  std::vector<ValueId> ordered;
  for (const Role role : {Role::constant, Role::carry, Role::scanned}) {
    for (std::size_t i = 0; i < roles_.size(); ++i) {
      if (roles_[i] == role) ordered.push_back(operands[i]);
    }
  }
  const ops::ScanParts parts{.length = loop_.length,
                             .num_consts = count(Role::constant),
                             .num_carry = count(Role::carry),
                             .is_reverse = order_ == Order::reverse};
  const std::vector<ValueId> made = ops::scan(b, parts, scan_body(), std::move(ordered));
  std::size_t next_carry = 0;
  std::size_t next_stacked = count(Role::carry);
  std::vector<ValueId> results;
  for (std::size_t i = loop_.num_consts; i < roles_.size(); ++i) {
    if (roles_[i] == Role::carry) {
      results.push_back(made[next_carry++]);
    } else if (roles_[i] == Role::stacked) {
      results.push_back(made[next_stacked++]);
    } else {
      results.push_back(operands[i]);
    }
  }
  return results;
}

}  // namespace

std::vector<ValueId> counted_loop(ir::Builder& b, const CountedLoop& loop, const ir::Function& body,
                                  const std::vector<ValueId>& operands) {
  return Body(loop, body).append(b, operands);
}

}  // namespace tessera::stablehlo
