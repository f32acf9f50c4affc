// The sum of an array and of zeros with one slice updated, such as the gradient of reading a slice,
// becomes an update of that slice of the array. A loop that adds up such gradients then changes its
// carry in place, instead of reading and writing all of it in each round.
#include <algorithm>
#include <optional>

#include "ir/bodies.h"
#include "ops/control/control.h"
#include "ops/control/minus_zeros.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "ops/record.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

/// What is known about the function under examination.
struct Here {
  Here(const Function& function, std::vector<bool> marks)
      : f(function),
        minus_zero(std::move(marks)),
        definition(f.values.size(), nullptr),
        uses(ir::count_uses(f)) {
    for (const Equation& equation : f.equations) {
      for (const ValueId id : equation.results) definition[id] = &equation;
    }
  }

  /// The equation that makes the value, before any conversion: sums of bf16 updates are f32.
  const Equation* made_unconverted(ValueId id) const {
    const Equation* made = definition[id];
    if (made == nullptr || *made->op->name != "convert" || uses[made->operands[0]] != 1)
      return made;
    const Equation* sum = definition[made->operands[0]];
    return sum != nullptr && *sum->op->name == "scatter_add" ? sum : made;
  }

  bool is_zero(ValueId id) const { return is_plus_zero(f, id); }
  std::int64_t size(ValueId id) const { return num_elements(f.type(id).shape); }

  const Function& f;
  std::vector<bool> minus_zero;  // per value: whether an element may be -0.0
  std::vector<const Equation*> definition;
  std::vector<int> uses;
};

/// An update larger than 1 / kLeastShare of the array is added as a whole array.
constexpr std::int64_t kLeastShare = 4;
/// Smaller arrays are added faster than the updates of each row.
constexpr std::int64_t kLeastOfRows = 1 << 14;

bool is_small_update(const Here& here, const Equation& made) {
  const std::int64_t whole = here.size(made.results[0]);
  if (*made.op->name == "dynamic_update_slice") {
    return here.is_zero(made.operands[0]) && kLeastShare * here.size(made.operands[1]) <= whole;
  }
  if (made.op == &pad_op) {
    const auto is_negative = [](std::int64_t x) { return x < 0; };
    const bool is_cut = std::ranges::any_of(made.attributes.ints("low"), is_negative) ||
                        std::ranges::any_of(made.attributes.ints("high"), is_negative);
    const bool is_spread = std::ranges::any_of(made.attributes.ints("interior"),
                                               [](std::int64_t x) { return x != 0; });
    return here.is_zero(made.operands[1]) && kLeastShare * here.size(made.operands[0]) <= whole &&
           !is_cut && !is_spread;
  }
  if (*made.op->name != "scatter_add" || made.attributes.integer("num_batch") != 0) return false;
  const std::int64_t count = here.size(made.operands[0]);
  return count > 0 && kLeastShare * count <= made.attributes.integer("size") &&
         (count == 1 || whole >= kLeastOfRows);
}

/// A sum that becomes an update.
struct Sum {
  ValueId array = ir::kNoValue;
  const Equation* update = nullptr;
};

std::optional<Sum> sum_of(const Here& here, const Equation& equation) {
  if (equation.op != &add_op && equation.op != &add_any_op) return std::nullopt;
  for (const std::size_t i : {0U, 1U}) {
    const ValueId array = equation.operands[1 - i], update = equation.operands[i];
    const Equation* made = here.made_unconverted(update);
    if (made != nullptr && here.uses[update] == 1 && !here.minus_zero[array] &&
        is_small_update(here, *made)) {
      return Sum{.array = array, .update = made};
    }
  }
  return std::nullopt;
}

/// `array` with `update` added to the slice that begins at `starts`.
ValueId added_to_slice(Builder& b, ValueId array, ValueId update,
                       const std::vector<ValueId>& starts) {
  const ValueId old = dynamic_slice(b, array, starts, b.type(update).shape);
  return dynamic_update_slice(b, array, add(b, old, update), starts);
}

ValueId added_to_rows(Builder& b, ValueId array, const Equation& made,
                      const std::vector<ValueId>& renamed) {
  const std::int64_t dim = made.attributes.integer("dim");
  ValueId numbers = renamed[made.operands[0]], updates = renamed[made.operands[1]];
  const Shape indices = b.type(numbers).shape;
  const std::int64_t count = num_elements(indices);
  if (indices.size() != 1) {
    Shape shape = b.type(updates).shape;
    const auto begin = shape.begin() + dim;
    shape.insert(shape.erase(begin, begin + std::ssize(indices)), count);
    numbers = reshape(b, numbers, {count});
    updates = reshape(b, updates, shape);
  }
  if (count > 1) {
    const RowSums rows = row_sums(b, numbers, updates, dim, made.attributes.integer("size"));
    numbers = rows.numbers;
    updates = rows.sums;
  }
  const ValueId old = gather(b, array, numbers, dim);
  const ValueId added = convert(b, updates, b.type(old).dtype);
  return scatter(b, array, numbers, add(b, old, added), dim);
}

ValueId updated(Builder& b, ValueId array, const Equation& made,
                const std::vector<ValueId>& renamed) {
  if (*made.op->name == "scatter_add") return added_to_rows(b, array, made, renamed);
  std::vector<ValueId> starts;
  if (made.op == &pad_op) {
    for (const std::int64_t low : made.attributes.ints("low")) {
      starts.push_back(scalar(b, static_cast<double>(low), DType::i32));
    }
    return added_to_slice(b, array, renamed[made.operands[0]], starts);
  }
  for (std::size_t i = 2; i < made.operands.size(); ++i) {
    starts.push_back(renamed[made.operands[i]]);
  }
  return added_to_slice(b, array, renamed[made.operands[1]], starts);
}

/// Whether the function would have such sums if no element were -0.0. Whether one may be -0.0 takes
/// longer to find out.
bool may_change(const Function& f) {
  const Here here(f, std::vector<bool>(f.values.size(), false));
  return std::ranges::any_of(f.equations, [&](const Equation& equation) {
    return sum_of(here, equation) ||
           std::ranges::any_of(ir::bodies_of(equation),
                               [](const Function* body) { return may_change(*body); });
  });
}

class Updates {
 public:
  /// The function with updates in place of sums; nullopt if there is nothing to change. `inputs`:
  /// whether each may have an element -0.0.
  std::optional<Function> changed(const Function& f, const std::vector<bool>& inputs);

 private:
  std::optional<ir::Attributes> with_changed_bodies(const Equation& equation,
                                                    const std::vector<bool>& minus_zero);

  MinusZeros minus_zeros_;
};

std::optional<ir::Attributes> Updates::with_changed_bodies(const Equation& equation,
                                                           const std::vector<bool>& minus_zero) {
  if (ir::bodies_of(equation).empty()) return std::nullopt;
  std::vector<bool> operands;
  for (const ValueId id : equation.operands) operands.push_back(minus_zero[id]);
  bool is_changed = false;
  ir::Attributes attributes =
      ir::with_bodies(equation.attributes, [&](const FunctionPtr& body) -> FunctionPtr {
        std::optional<Function> result =
            changed(*body, minus_zeros_.inputs_of(*body, equation, operands));
        if (!result) return body;
        is_changed = true;
        return std::make_shared<const Function>(*std::move(result));
      });
  if (!is_changed) return std::nullopt;
  return attributes;
}

std::optional<Function> Updates::changed(const Function& f, const std::vector<bool>& inputs) {
  const Here here(f, minus_zeros_.values(f, inputs));
  bool is_changed = false;
  Function result = ir::empty_like(f);
  Builder b(result);
  std::vector<ValueId> renamed(f.values.size(), ir::kNoValue);
  const auto add = [&](ValueId id) { return renamed[id] = result.add_value(f.values[id]); };
  for (const ValueId id : f.inputs) result.inputs.push_back(add(id));
  for (const Equation& equation : f.equations) {
    if (const std::optional<Sum> sum = sum_of(here, equation)) {
      b.set_span(equation.span);
      renamed[equation.results[0]] = updated(b, renamed[sum->array], *sum->update, renamed);
      is_changed = true;
      continue;
    }
    Equation& copy = result.equations.emplace_back(equation);
    if (auto attributes = with_changed_bodies(equation, here.minus_zero)) {
      copy.attributes = *std::move(attributes);
      is_changed = true;
    }
    for (ValueId& id : copy.operands) id = renamed[id];
    for (ValueId& id : copy.results) id = add(id);
  }
  if (!is_changed) return std::nullopt;
  for (const ValueId id : f.outputs) result.outputs.push_back(renamed[id]);
  return ir::without_dead_code(std::move(result));
}

}  // namespace

Function add_updates_in_place(Function function) {
  if (!may_change(function)) return function;
  auto result = Updates().changed(function, std::vector<bool>(function.inputs.size(), true));
  return result ? *std::move(result) : std::move(function);
}

}  // namespace tessera::ops
