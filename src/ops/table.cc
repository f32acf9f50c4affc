// The table of all ops, and the functions that src/ir calls to use it.
#include <algorithm>
#include <unordered_map>

#include <tessera/error.h>

#include "ir/effects.h"
#include "ops/body_rules.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::ops {

bool contains(TypeSet set, DType dtype) {
  const TypeSet kind = dtype == DType::boolean ? TypeSet::boolean
                       : is_integer(dtype)     ? TypeSet::integers
                                               : TypeSet::wide_floats;
  // f16 and bf16 are floats but not wide ones: the next bit stands for them.
  const unsigned bit = static_cast<unsigned>(kind) << (is_half(dtype) ? 1U : 0U);
  return (static_cast<unsigned>(set) & bit) != 0;
}

void ShapeContext::fail(const std::string& what, const std::string& wanted,
                        const std::string& cure) const {
  std::string found;
  for (const Type& type : operands) {
    if (!found.empty()) found += ", ";
    found += tessera::to_string(type);
  }
  if (found.empty()) found = "no operands";
  throw UserError({.what = std::string(op) + ": " + what,
                   .where = span,
                   .found = std::move(found),
                   .wanted = wanted,
                   .cure = cure});
}

VjpRule not_differentiable(std::string why) { return {nullptr, std::move(why)}; }
VjpRule differentiated_inside() { return {nullptr, ""}; }
BatchRule not_batched(std::string why) { return {nullptr, std::move(why)}; }
BatchRule batched_inside() { return {nullptr, ""}; }

const Samples& SampleList::operator*() const {
  std::call_once(once_, [this] {
    if (make_ != nullptr) samples_ = make_();
  });
  return samples_;
}

ValueId BatchContext::batched(std::size_t i) {
  return is_batched[i] ? operands[i] : repeat(b, operands[i], size);
}

std::string_view name(Reduction reduction) {
  constexpr std::string_view kNames[] = {"sum", "max", "min", "and", "or", "bit_or"};
  return kNames[static_cast<std::size_t>(reduction)];
}

Reduction reduction_named(std::string_view name_wanted) {
  for (Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min,
                              Reduction::logical_and, Reduction::logical_or, Reduction::bit_or}) {
    if (name(reduction) == name_wanted) return reduction;
  }
  throw UserError({.what = "unknown reduction '" + std::string(name_wanted) + "'",
                   .found = std::string(name_wanted),
                   .wanted = "sum, max, min, and, or, bit_or",
                   .cure = "use one of these names"});
}

namespace {

std::string factor_name(int factor) {
  const std::string letter(1, static_cast<char>('a' + factor % 26));
  return factor < 26 ? letter : letter + std::to_string(factor / 26);
}

std::string dim_text(const std::vector<int>& factors) {
  std::string text;
  for (int factor : factors) text += (text.empty() ? "" : " ") + factor_name(factor);
  if (factors.empty()) return "1";
  return factors.size() > 1 ? "(" + text + ")" : text;
}

/// Formats a window as `[2a+b-1]`, `[9-a]` or `[(a-1)/2]`, and with an extent as `[2a+0:3]`.
std::string window_text(const OperandWindow& window) {
  std::string text;
  const bool is_number_first = window.terms[0].step < 0;
  if (is_number_first) text = std::to_string(window.offset);
  for (const OperandWindow::Term& term : window.terms) {
    if (!text.empty() || term.step < 0) text += term.step < 0 ? "-" : "+";
    if (std::abs(term.step) != 1) text += std::to_string(std::abs(term.step));
    text += factor_name(term.factor);
  }
  if (window.extent != 1) {
    const std::int64_t end = window.offset + window.extent;
    text +=
        (window.offset < 0 ? "" : "+") + std::to_string(window.offset) + ":" + std::to_string(end);
  } else if (!is_number_first && window.offset != 0) {
    text += (window.offset > 0 ? "+" : "") + std::to_string(window.offset);
  }
  if (window.divisor != 1) text = "(" + text + ")/" + std::to_string(window.divisor);
  return "[" + text + "]";
}

std::string arrays_text(const std::vector<std::vector<std::string>>& arrays) {
  std::string text;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    std::string array;
    for (const std::string& dim : arrays[i]) array += (array.empty() ? "" : " ") + dim;
    text += (i ? ", " : "") + (array.empty() ? "()" : array);
  }
  return text;
}

std::vector<std::vector<std::string>> dim_texts(const std::vector<Factors::Dims>& arrays) {
  std::vector<std::vector<std::string>> texts;
  for (const Factors::Dims& dims : arrays) {
    texts.emplace_back();
    for (const std::vector<int>& dim : dims) texts.back().push_back(dim_text(dim));
  }
  return texts;
}

}  // namespace

std::string to_string(const Factors& factors) {
  std::vector<std::vector<std::string>> operands = dim_texts(factors.operands);
  for (const OperandWindow& window : factors.windows) {
    operands[window.operand][window.dim] = window_text(window);
  }
  std::string text = arrays_text(operands) + (operands.empty() ? "-> " : " -> ") +
                     arrays_text(dim_texts(factors.results));
  std::string notes;
  auto note = [&](int factor, std::string_view word) {
    notes += notes.empty() ? " | " : ", ";
    notes += factor_name(factor);
    notes += ": ";
    notes += word;
  };
  for (int factor : factors.reduced) note(factor, name(factors.reduction));
  for (std::size_t i = 0; i < factors.factors.size(); ++i) {
    const FactorKind kind = factors.factors[i].kind;
    if (kind == FactorKind::replicate) note(static_cast<int>(i), "whole");
    if (kind == FactorKind::permute) note(static_cast<int>(i), "permuted");
  }
  return text + notes;
}

namespace {

constexpr OpFamily (*kFamilies[])() = {
    along_ops,
    attention_ops,
    axis_ops,
    bitwise_ops,
    callback_ops,
    collective_ops,
    compare_select_ops,
    contract_ops,
    control_ops,
    conv_ops,
    convert_ops,
    create_ops,
    cumulative_ops,
    dynamic_slice_ops,
    elementwise_binary_ops,
    elementwise_unary_ops,
    fourier_ops,
    index_ops,
    lu_ops,
    mark_ops,
    mpmd_ops,
    permute_ops,
    qr_ops,
    random_ops,
    reduce_ops,
    reduce_prod_ops,
    reduce_window_ops,
    rounding_ops,
    scatter_join_ops,
    scatter_ops,
    shape_ops,
    sort_ops,
    special_ops,
    spectral_ops,
    top_k_ops,
    triangular_ops,
    trigonometric_ops,
    window_number_ops,
    window_ops,
};

}  // namespace

const std::vector<const OpRecord*>& all_ops() {
  static const std::vector<const OpRecord*> sorted = [] {
    std::vector<const OpRecord*> ops;
    for (auto* family : kFamilies) {
      for (const OpRecord* op : family()) ops.push_back(op);
    }
    std::sort(ops.begin(), ops.end(),
              [](const OpRecord* x, const OpRecord* y) { return *x->name < *y->name; });
    return ops;
  }();
  return sorted;
}

bool is(const ir::Equation& equation, const OpRecord& op) {
  return equation.op == &op || *equation.op->name == *op.name;
}

const ir::Equation* definition_of(const ir::Function& function, ValueId value) {
  for (auto equation = function.equations.rbegin(); equation != function.equations.rend();
       ++equation) {
    const auto& results = equation->results;
    if (std::find(results.begin(), results.end(), value) != results.end()) return &*equation;
  }
  return nullptr;
}

}  // namespace tessera::ops

namespace tessera::ir {

namespace {

std::string type_set_text(ops::TypeSet set) {
  std::string text;
  for (DType dtype : kAllDTypes) {
    if (!ops::contains(set, dtype)) continue;
    text += (text.empty() ? "" : ", ") + std::string(name(dtype));
  }
  return text;
}

std::string type_cure(ops::TypeSet set) {
  if (set == ops::TypeSet::boolean) return "compare first, for example x != 0";
  if (ops::contains(set, DType::f32))
    return "convert the operand, for example astype(x, DType::f32)";
  return "convert the operand, for example astype(x, DType::i32)";
}

void check_dtypes(const ops::ShapeContext& context, const ops::OpRecord& op) {
  const ops::TypeSet set = *op.types;
  const std::size_t count = context.operands.size();
  for (std::size_t i = 0; i < (op.num_typed == 0 ? count : std::min(op.num_typed, count)); ++i) {
    const DType dtype = context.operands[i].dtype;
    if (ops::contains(set, dtype)) continue;
    context.fail("does not support operands of dtype " + std::string(name(dtype)),
                 "dtypes " + type_set_text(set), type_cure(set));
  }
}

void check_attributes(const ops::ShapeContext& context, const ops::OpRecord& op) {
  ops::AttributeNames names = *op.attributes;
  for (const std::string& attribute : names) {
    if (context.attributes.has(attribute)) continue;
    context.fail("attribute '" + attribute + "' is missing", "attribute '" + attribute + "'",
                 "write " + std::string(context.op) + "[" + attribute + "=...]");
  }
  names.insert(names.end(), op.optional_attributes.begin(), op.optional_attributes.end());
  for (const auto& [attribute, value] : context.attributes.items()) {
    if (std::find(names.begin(), names.end(), attribute) != names.end()) continue;
    std::string known;
    for (const std::string& one : names) known += (known.empty() ? "" : ", ") + one;
    context.fail("takes no attribute '" + attribute + "'",
                 known.empty() ? "no attributes" : "attributes " + known,
                 "remove '" + attribute + "'");
  }
}

}  // namespace

std::string_view op_name(const ops::OpRecord& op) { return *op.name; }

void add_usual_attributes(const ops::OpRecord& op, Attributes& attributes) {
  if (op.add_usual != nullptr) op.add_usual(attributes);
}

const ops::OpRecord* find_op(std::string_view op_name_wanted) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const ops::OpRecord*> map;
    for (const ops::OpRecord* op : ops::all_ops()) {
      require(map.emplace(*op->name, op).second, "ops have distinct names");
    }
    return map;
  }();
  const auto place = by_name.find(op_name_wanted);
  return place == by_name.end() ? nullptr : place->second;
}

const ops::OpRecord& op_named(std::string_view op_name_wanted) {
  const ops::OpRecord* op = find_op(op_name_wanted);
  require(op != nullptr, "the name of an existing op");
  return *op;
}

bool is_effect(const ops::OpRecord& op) { return &op == &ops::host_callback_op; }

bool is_inspection(const ops::OpRecord& op) { return &op == &ops::inspect_sharding_op; }

bool is_in_group(const Equation& equation) {
  return equation.op == &ops::sharding_constraint_op && equation.attributes.has("group");
}

const std::vector<std::string>& attribute_names(const ops::OpRecord& op) { return *op.attributes; }

std::vector<Type> infer_types(const ops::OpRecord& op, const Attributes& attributes,
                              const std::vector<Type>& operands, const Span& span) {
  const ops::ShapeContext context{
      .op = *op.name, .attributes = attributes, .operands = operands, .span = span};
  check_attributes(context, op);
  check_dtypes(context, op);
  return (*op.shape)(context);
}

std::optional<BodyFlow> body_flow(const Equation& equation) {
  const ops::BodyRules* rules = equation.op->bodies;
  if (rules == nullptr || rules->flow == nullptr) return std::nullopt;
  return rules->flow(equation.attributes, equation.operands.size());
}

Attributes kept_attributes(const Equation& equation, const Kept& kept) {
  const ops::BodyRules* rules = equation.op->bodies;
  require(rules != nullptr && rules->kept != nullptr, "operands of the op may be dropped");
  return rules->kept(equation.attributes, kept);
}

}  // namespace tessera::ir
