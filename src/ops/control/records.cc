// Control flow and calls: ops with nested functions.

#include <algorithm>

#include <tessera/error.h>

#include "ops/control/internal.h"
#include "ops/control/save_policy.h"
#include "ops/ops.h"
#include "ops/reference/loops.h"

namespace tessera::ops {

// --- shapes

const Function& body_of(const ShapeContext& c, std::string_view attribute) {
  for (const auto& [name, value] : c.attributes.items()) {
    const auto* found = std::get_if<ir::Bodies>(&value);
    if (name == attribute && found != nullptr && found->functions.size() == 1) {
      return *found->functions[0];
    }
  }
  c.fail("attribute '" + std::string(attribute) + "' is not one function",
         std::string(attribute) + " is one nested function",
         "write " + std::string(attribute) + "={(%0: f32[]) { ... }}");
}

namespace {

std::vector<Type> input_types(const Function& function) {
  std::vector<Type> types;
  for (ValueId id : function.inputs) types.push_back(function.type(id));
  return types;
}

std::vector<Type> output_types(const Function& function) {
  std::vector<Type> types;
  for (ValueId id : function.outputs) types.push_back(function.type(id));
  return types;
}

std::string text_of(const std::vector<Type>& types) {
  std::string text;
  for (const Type& type : types) text += (text.empty() ? "" : ", ") + tessera::to_string(type);
  return "(" + text + ")";
}

void expect_types(const ShapeContext& c, const std::string& subject, const std::vector<Type>& found,
                  const std::vector<Type>& wanted) {
  if (found == wanted) return;
  c.fail(subject + " has types " + text_of(found), subject + " with types " + text_of(wanted),
         "write the nested function for the types that it receives and must return");
}

std::size_t count_of(const ShapeContext& c, std::string_view attribute, std::size_t most) {
  const std::int64_t value = integer_of(c, attribute);
  if (value < 0 || at(value) > most) {
    c.fail(std::string(attribute) + " = " + std::to_string(value) + " with " +
               std::to_string(c.operands.size()) + " operands",
           std::string(attribute) + " from 0 to " + std::to_string(most),
           "count the operands again");
  }
  return at(value);
}

std::vector<Type> slice_of(const std::vector<Type>& types, std::size_t first, std::size_t last) {
  return {types.begin() + static_cast<std::ptrdiff_t>(first),
          types.begin() + static_cast<std::ptrdiff_t>(last)};
}

std::vector<Type> scan_shape(const ShapeContext& c) {
  const Function& body = body_of(c, "body");
  const std::size_t num_consts = count_of(c, "num_consts", c.operands.size());
  const std::size_t num_carry = count_of(c, "num_carry", c.operands.size() - num_consts);
  const std::int64_t length = integer_of(c, "length");
  if (length < 0)
    c.fail("the length is negative", "a length of 0 or more", "count the slices again");
  boolean_of(c, "reverse");
  if (c.attributes.has("microbatches")) boolean_of(c, "microbatches");
  std::vector<Type> wanted = slice_of(c.operands, 0, num_consts + num_carry);
  for (std::size_t i = wanted.size(); i < c.operands.size(); ++i) {
    Type type = c.operands[i];
    if (type.rank() == 0 || type.shape[0] != length) {
      c.fail("operand " + std::to_string(i) + " does not have " + std::to_string(length) +
                 " slices along dimension 0",
             "arrays whose first dimension is the length of the scan",
             "scan arrays of equal length, or pass the others as constants");
    }
    type.shape.erase(type.shape.begin());
    wanted.push_back(std::move(type));
  }
  expect_types(c, "the body's list of inputs", input_types(body), wanted);
  const std::vector<Type> outputs = output_types(body);
  const std::vector<Type> carry = slice_of(c.operands, num_consts, num_consts + num_carry);
  expect_types(c, "the carry that the body returns",
               slice_of(outputs, 0, std::min(num_carry, outputs.size())), carry);
  std::vector<Type> results = outputs;
  for (std::size_t i = num_carry; i < results.size(); ++i) {
    results[i].shape.insert(results[i].shape.begin(), length);
  }
  return results;
}

std::vector<Type> while_shape(const ShapeContext& c) {
  const Function& body = body_of(c, "body");
  const Function& condition = body_of(c, "condition");
  const std::size_t num_consts = count_of(c, "num_consts", c.operands.size());
  expect_types(c, "the condition's list of inputs", input_types(condition), c.operands);
  expect_types(c, "the condition's result", output_types(condition), {boolean({})});
  expect_types(c, "the body's list of inputs", input_types(body), c.operands);
  const std::vector<Type> carry = slice_of(c.operands, num_consts, c.operands.size());
  expect_types(c, "the carry that the body returns", output_types(body), carry);
  return carry;
}

std::vector<Type> cond_shape(const ShapeContext& c) {
  if (c.operands.empty() || c.operands[0] != i32({})) {
    c.fail("operand 0 is not the number of a branch", "an i32[] as operand 0",
           "convert the predicate with astype(pred, DType::i32)");
  }
  const ir::Bodies* branches = nullptr;
  for (const auto& [name, value] : c.attributes.items()) {
    if (name == "branches") branches = std::get_if<ir::Bodies>(&value);
  }
  if (branches == nullptr || branches->functions.empty()) {
    c.fail("there are no branches", "at least one branch",
           "write branches={(...) {...}, (...) {...}}");
  }
  const std::vector<Type> wanted = slice_of(c.operands, 1, c.operands.size());
  const std::vector<Type> results = output_types(*branches->functions[0]);
  for (std::size_t i = 0; i < branches->functions.size(); ++i) {
    const std::string branch = "branch " + std::to_string(i);
    expect_types(c, branch + "'s list of inputs", input_types(*branches->functions[i]), wanted);
    expect_types(c, branch + "'s list of results", output_types(*branches->functions[i]), results);
  }
  return results;
}

}  // namespace

std::vector<Type> call_shape(const ShapeContext& c) {
  const Function& body = body_of(c, "body");
  expect_types(c, "the body's list of inputs", input_types(body), c.operands);
  return output_types(body);
}

namespace {

std::vector<Type> named_call_shape(const ShapeContext& c) {
  string_of(c, "name");
  return call_shape(c);
}

std::vector<Type> remat_shape(const ShapeContext& c) {
  const std::string& policy = string_of(c, "policy");
  if (!save_policy_named(policy)) {
    c.fail("unknown policy '" + policy + "'",
           "nothing_saveable, everything_saveable, dots_saveable or "
           "dots_with_no_batch_dims_saveable",
           "use one of these names");
  }
  return call_shape(c);
}

std::vector<Type> custom_vjp_shape(const ShapeContext& c) {
  const std::size_t num_args = count_of(c, "num_args", c.operands.size());
  const Function& primal = body_of(c, "primal");
  const Function& forward = body_of(c, "forward");
  const Function& backward = body_of(c, "backward");
  const std::vector<Type> results = output_types(primal);
  expect_types(c, "the primal's list of inputs", input_types(primal), c.operands);
  expect_types(c, "forward's list of inputs", input_types(forward), c.operands);
  const std::vector<Type> with_residuals = output_types(forward);
  const std::size_t num_results = std::min(results.size(), with_residuals.size());
  expect_types(c, "forward's list of results", slice_of(with_residuals, 0, num_results), results);
  std::vector<Type> wanted = slice_of(with_residuals, num_results, with_residuals.size());
  wanted.insert(wanted.end(), c.operands.begin() + static_cast<std::ptrdiff_t>(num_args),
                c.operands.end());
  wanted.insert(wanted.end(), results.begin(), results.end());
  expect_types(c, "backward's list of inputs", input_types(backward), wanted);
  expect_types(c, "backward's list of results", output_types(backward),
               slice_of(c.operands, 0, num_args));
  return results;
}

// --- reference

std::vector<HostArray> values_of(const std::vector<const HostArray*>& operands, std::size_t first) {
  std::vector<HostArray> values;
  for (std::size_t i = first; i < operands.size(); ++i) values.push_back(*operands[i]);
  return values;
}

/// The slice at `index` along dimension 0, without that dimension.
HostArray row_of(const HostArray& array, std::int64_t index) {
  Type type = array.type();
  type.shape.erase(type.shape.begin());
  HostArray row(type);
  const std::size_t bytes = row.bytes().size();
  std::copy_n(array.bytes().begin() + static_cast<std::ptrdiff_t>(at(index) * bytes), bytes,
              row.bytes().begin());
  return row;
}

void set_row(HostArray& array, std::int64_t index, const HostArray& row) {
  const auto start = static_cast<std::ptrdiff_t>(at(index) * row.bytes().size());
  std::copy(row.bytes().begin(), row.bytes().end(), array.bytes().begin() + start);
}

std::vector<HostArray> scan_reference(const ReferenceContext& c) {
  const ScanParts parts = read_scan(c.attributes);
  const Function& body = c.attributes.body("body");
  std::vector<HostArray> results;
  for (std::size_t i = 0; i < c.results.size(); ++i) {
    results.push_back(i < parts.num_carry ? *c.operands[parts.num_consts + i]
                                          : HostArray(c.results[i]));
  }
  for (std::int64_t step = 0; step < parts.length; ++step) {
    const std::int64_t index = parts.is_reverse ? parts.length - 1 - step : step;
    std::vector<HostArray> inputs;
    for (std::size_t i = 0; i < c.operands.size(); ++i) {
      const bool is_carry = i >= parts.num_consts && i < parts.first_scanned();
      if (i >= parts.first_scanned()) {
        inputs.push_back(row_of(*c.operands[i], index));
      } else {
        inputs.push_back(is_carry ? results[i - parts.num_consts] : *c.operands[i]);
      }
    }
    std::vector<HostArray> outputs = c.call(body, std::move(inputs));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (i < parts.num_carry) {
        results[i] = std::move(outputs[i]);
      } else {
        set_row(results[i], index, outputs[i]);
      }
    }
  }
  return results;
}

std::vector<HostArray> while_reference(const ReferenceContext& c) {
  const std::size_t num_consts = at(c.attributes.integer("num_consts"));
  std::vector<HostArray> state = values_of(c.operands, 0);
  while (c.call(c.attributes.body("condition"), state)[0].data<bool>()[0]) {
    std::vector<HostArray> carry = c.call(c.attributes.body("body"), state);
    std::move(carry.begin(), carry.end(), state.begin() + static_cast<std::ptrdiff_t>(num_consts));
  }
  return {state.begin() + static_cast<std::ptrdiff_t>(num_consts), state.end()};
}

std::vector<HostArray> cond_reference(const ReferenceContext& c) {
  const auto& branches = c.attributes.get<ir::Bodies>("branches").functions;
  const std::int64_t last = static_cast<std::int64_t>(branches.size()) - 1;
  const std::int64_t index = c.operands[0]->data<std::int32_t>()[0];
  return c.call(*branches[at(std::clamp<std::int64_t>(index, 0, last))], values_of(c.operands, 1));
}

}  // namespace

std::vector<HostArray> call_reference(const ReferenceContext& c) {
  return c.call(c.attributes.body("body"), values_of(c.operands, 0));
}

namespace {

std::vector<HostArray> custom_vjp_reference(const ReferenceContext& c) {
  return c.call(c.attributes.body("primal"), values_of(c.operands, 0));
}

std::vector<HostArray> barrier_reference(const ReferenceContext& c) {
  return values_of(c.operands, 0);
}

// --- cost

double scan_cost(const Attributes& attributes, const std::vector<Type>&, const std::vector<Type>&) {
  return static_cast<double>(attributes.integer("length")) * flops_of(attributes.body("body"));
}

/// The cost of one iteration: their number is known only at run time.
double while_cost(const Attributes& attributes, const std::vector<Type>&,
                  const std::vector<Type>&) {
  return flops_of(attributes.body("condition")) + flops_of(attributes.body("body"));
}

double cond_cost(const Attributes& attributes, const std::vector<Type>&, const std::vector<Type>&) {
  double most = 0;
  for (const FunctionPtr& branch : attributes.get<ir::Bodies>("branches").functions) {
    most = std::max(most, flops_of(*branch));
  }
  return most;
}

}  // namespace

ir::BodyFlow call_flow(const Attributes&, std::size_t) { return {}; }

double call_cost(const Attributes& attributes, const std::vector<Type>&, const std::vector<Type>&) {
  return flops_of(attributes.body("body"));
}

namespace {

double custom_vjp_cost(const Attributes& attributes, const std::vector<Type>&,
                       const std::vector<Type>&) {
  return flops_of(attributes.body("primal"));
}

// --- bodies

std::int64_t count(const std::vector<bool>& marks, std::size_t first, std::size_t size) {
  const auto begin = marks.begin() + static_cast<std::ptrdiff_t>(first);
  return std::count(begin, begin + static_cast<std::ptrdiff_t>(size), true);
}

Attributes same_attributes(const Attributes& attributes, const ir::Kept&) { return attributes; }

ir::BodyFlow scan_flow(const Attributes& attributes, std::size_t) {
  const ScanParts parts = read_scan(attributes);
  return {.first_carry = parts.num_consts,
          .num_carry = parts.num_carry,
          .is_sliced = true,
          .iterations = parts.length};
}

Attributes kept_of_scan(const Attributes& attributes, const ir::Kept& kept) {
  const ScanParts parts = read_scan(attributes);
  Attributes result = attributes;
  result.set("num_consts", count(kept.operands, 0, parts.num_consts));
  result.set("num_carry", count(kept.results, 0, parts.num_carry));
  return result;
}

ir::BodyFlow while_flow(const Attributes& attributes, std::size_t num_operands) {
  const std::size_t num_consts = at(attributes.integer("num_consts"));
  // bodies_of goes through the attributes in sorted order: `body` is 0, `condition` is 1.
  return {.first_carry = num_consts, .num_carry = num_operands - num_consts, .condition = 1};
}

Attributes kept_of_while(const Attributes& attributes, const ir::Kept& kept) {
  Attributes result = attributes;
  result.set("num_consts", count(kept.operands, 0, at(attributes.integer("num_consts"))));
  return result;
}

ir::BodyFlow cond_flow(const Attributes&, std::size_t) { return {.num_choosing = 1}; }

const BodyRules kScanRules{.flow = scan_flow, .kept = kept_of_scan};
const BodyRules kWhileRules{.flow = while_flow, .kept = kept_of_while};
const BodyRules kCondRules{.flow = cond_flow, .kept = same_attributes};
const BodyRules kCallRules{.flow = call_flow, .kept = same_attributes, .callee = "body"};
// Its functions keep the signatures of the user's functions: no operand or result is removed.
const BodyRules kCustomVjpRules{.callee = "primal"};

// --- derivative of the barrier

Cotangents barrier_vjp(VjpContext& c) {
  const auto is_passed = [&](std::size_t i) {
    return c.is_wanted[i] && c.cotangents[i] != ir::kNoValue;
  };
  std::vector<ValueId> present;
  for (std::size_t i = 0; i < c.cotangents.size(); ++i) {
    if (is_passed(i)) present.push_back(c.cotangents[i]);
  }
  const std::vector<ValueId> held = optimization_barrier(c.b, present);
  Cotangents cotangents(c.equation.operands.size(), ir::kNoValue);
  std::size_t next = 0;
  for (std::size_t i = 0; i < cotangents.size(); ++i) {
    if (is_passed(i)) cotangents[i] = held[next++];
  }
  return cotangents;
}

}  // namespace

const OpRecord call_op{
    .name = "call",
    .doc = "The nested function applied to the operands, under a name.",
    .source = "jax.jit within jit",
    .attributes = AttributeNames{"body", "name"},
    .types = TypeSet::any,
    .shape = named_call_shape,
    .vjp = differentiated_inside(),
    .batch = batched_inside(),
    .factors = whole_factors,
    .pattern = Pattern::control,
    .host = "call",
    .stablehlo = call_form("body"),
    .reference = call_reference,
    .cost = call_cost,
    .samples = call_samples,
    .bodies = &kCallRules,
};

const OpRecord cond_op{
    .name = "cond",
    .doc =
        "The branch whose number is operand 0, applied to the other operands; numbers out of range "
        "select the nearest branch. Other branches are not run.",
    .source = "jax.lax.switch",
    .attributes = AttributeNames{"branches"},
    .types = TypeSet::any,
    .shape = cond_shape,
    .vjp = differentiated_inside(),
    .batch = batched_inside(),
    .factors = whole_factors,
    .pattern = Pattern::control,
    .host = "cond",
    .stablehlo = cond_form,
    .reference = cond_reference,
    .cost = cond_cost,
    .samples = cond_samples,
    .bodies = &kCondRules,
};

const OpRecord custom_vjp_op{
    .name = "custom_vjp",
    .doc =
        "`primal` applied to the operands. When it is differentiated, `forward` replaces it and "
        "`backward` computes the cotangents.",
    .source = "jax.custom_vjp",
    .attributes = AttributeNames{"backward", "forward", "num_args", "primal"},
    .types = TypeSet::any,
    .shape = custom_vjp_shape,
    .vjp = differentiated_inside(),
    .batch = batched_inside(),
    .factors = whole_factors,
    .pattern = Pattern::control,
    .host = "custom_vjp",
    .stablehlo = call_form("primal"),
    .reference = custom_vjp_reference,
    .cost = custom_vjp_cost,
    .samples = custom_vjp_samples,
    .bodies = &kCustomVjpRules,
};

const OpRecord optimization_barrier_op{
    .name = "optimization_barrier",
    .doc =
        "The operands, unchanged. No pass may merge them with other values or move equations "
        "across the barrier.",
    .source = "StableHLO, optimization_barrier",
    .attributes = AttributeNames{},
    .types = TypeSet::any,
    .shape = same_as_operands,
    .vjp = barrier_vjp,
    .batch = batched_inside(),
    .factors = identity_factors,
    .pattern = Pattern::control,
    .host = "optimization_barrier",
    .stablehlo = barrier_form,
    .reference = barrier_reference,
    .cost = no_flops,
    .samples = Samples{{.operands = {{f32({5, 6})}, {f32({12, 1})}}}, {.operands = {{i32({10})}}}},
};

const OpRecord remat_op{
    .name = "remat",
    .doc =
        "The nested function applied to the operands; its derivative recomputes what `policy` does "
        "not save.",
    .source = "jax.checkpoint",
    .attributes = AttributeNames{"body", "policy"},
    .types = TypeSet::any,
    .shape = remat_shape,
    .vjp = differentiated_inside(),
    .batch = batched_inside(),
    .factors = whole_factors,
    .pattern = Pattern::control,
    .host = "remat",
    .stablehlo = call_form("body"),
    .reference = call_reference,
    .cost = call_cost,
    .samples = remat_samples,
    .bodies = &kCallRules,
};

const OpRecord scan_op{
    .name = "scan",
    .doc =
        "The body applied `length` times to the constants, the carry and one slice after another "
        "of the scanned operands. The results are the last carry and the stacked slices. With "
        "`microbatches` each iteration is a microbatch, which a pipeline may run in stages.",
    .source = "jax.lax.scan",
    .attributes = AttributeNames{"body", "length", "num_carry", "num_consts", "reverse"},
    .types = TypeSet::any,
    .shape = scan_shape,
    .vjp = differentiated_inside(),
    .batch = batched_inside(),
    .factors = whole_factors,
    .pattern = Pattern::control,
    .host = "scan",
    .stablehlo = scan_form,
    .reference = scan_reference,
    .cost = scan_cost,
    .samples = scan_samples,
    .bodies = &kScanRules,
    .optional_attributes = {"microbatches"},
};

const OpRecord while_op{
    .name = "while",
    .doc = "The body applied to the carry as long as the condition holds.",
    .source = "jax.lax.while_loop",
    .attributes = AttributeNames{"body", "condition", "num_consts"},
    .types = TypeSet::any,
    .shape = while_shape,
    .vjp = not_differentiable("a loop whose number of iterations depends on data has no reverse "
                              "mode; use scan, or fori_loop with fixed bounds"),
    .batch = batched_inside(),
    .factors = whole_factors,
    .pattern = Pattern::control,
    .host = "while",
    .stablehlo = while_form,
    .reference = while_reference,
    .cost = while_cost,
    .samples = while_samples,
    .bodies = &kWhileRules,
};

OpFamily control_ops() {
  return {&call_op,  &cond_op, &custom_vjp_op, &optimization_barrier_op,
          &remat_op, &scan_op, &while_op};
}

}  // namespace tessera::ops
