// Callbacks: host_callback, which is an effect, and pure_callback.
#include <cstring>

#include <tessera/error.h>

#include "ops/control/control.h"
#include "ops/control/internal.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

/// The types of the results if the operands have these batch dimensions in front.
std::vector<Type> whole_results(const Attributes& attributes, const Shape& batch) {
  std::vector<Type> results = attributes.get<ir::HostCallback>("callback").results;
  for (Type& type : results) type.shape.insert(type.shape.begin(), batch.begin(), batch.end());
  return results;
}

std::vector<Type> called_shape(const ShapeContext& c, std::size_t tokens) {
  for (const auto& [attribute, value] : c.attributes.items()) {
    if (attribute != "callback" || std::holds_alternative<ir::HostCallback>(value)) continue;
    c.fail("the attribute callback is of the wrong kind", "callback=host_callback",
           "write callback=host_callback; functions are passed to debug::callback and "
           "pure_callback");
  }
  const std::int64_t num_batch = integer_of(c, "num_batch");
  const bool has_arrays = c.operands.size() > tokens;
  const Shape first = has_arrays ? c.operands[tokens].shape : Shape();
  for (std::size_t i = tokens; i < std::max(c.operands.size(), tokens + 1); ++i) {
    const Shape& shape = has_arrays ? c.operands[i].shape : first;
    const bool is_batch = num_batch >= 0 && num_batch <= std::ssize(shape) &&
                          std::equal(shape.begin(), shape.begin() + num_batch, first.begin());
    if (is_batch) continue;
    c.fail("the operands do not share num_batch leading dimensions",
           "the same " + std::to_string(num_batch) + " leading dimensions in all operands",
           "count the dimensions that vmap has added");
  }
  return whole_results(c.attributes, Shape(first.begin(), first.begin() + num_batch));
}

std::vector<Type> effect_shape(const ShapeContext& c) {
  if (c.operands.empty() || c.operands[0] != u32({})) {
    c.fail("operand 0 is not a token", "a u32[] as operand 0", "write constant 0 as the token");
  }
  std::vector<Type> results = called_shape(c, 1);
  results.insert(results.begin(), c.operands[0]);
  return results;
}

/// Many passes treat an equation without operands as a constant.
std::vector<Type> pure_shape(const ShapeContext& c) {
  if (c.operands.empty()) {
    c.fail("there are no operands", "at least one operand", "pass a constant");
  }
  return called_shape(c, 0);
}

/// The callback is called for each element of the batch, the last dimension fastest. Tokens are not
/// connected yet, so the token of one element will do.
std::vector<ValueId> called_batch(BatchContext& c, std::size_t tokens) {
  std::vector<ValueId> operands;
  if (tokens > 0) {
    ValueId token = c.operands[0];
    if (c.is_batched[0]) token = reshape(c.b, slice_dim(c.b, token, 0, 0, 1), {});
    operands.push_back(token);
  }
  for (std::size_t i = tokens; i < c.operands.size(); ++i) operands.push_back(c.batched(i));
  Attributes attributes = c.equation.attributes;
  attributes.set("num_batch", attributes.integer("num_batch") + 1);
  std::vector<ValueId> results =
      c.b.emit_all(*c.equation.op, std::move(attributes), std::move(operands));
  if (tokens > 0) results[0] = c.batched(0);
  return results;
}

std::vector<ValueId> effect_batch(BatchContext& c) { return called_batch(c, 1); }

std::vector<ValueId> pure_batch(BatchContext& c) { return called_batch(c, 0); }

std::vector<HostArray> called_reference(const ReferenceContext& c, std::size_t tokens) {
  std::vector<Type> types;
  std::vector<const std::byte*> operands;
  for (std::size_t i = tokens; i < c.operands.size(); ++i) {
    types.push_back(c.operands[i]->type());
    operands.push_back(c.operands[i]->bytes().data());
  }
  std::vector<HostArray> arrays;
  for (std::size_t i = 0; i < tokens; ++i) arrays.push_back(*c.operands[i]);
  for (std::size_t i = tokens; i < c.results.size(); ++i) arrays.emplace_back(c.results[i]);
  std::vector<std::byte*> results;
  for (std::size_t i = tokens; i < arrays.size(); ++i) {
    results.push_back(arrays[i].bytes().data());
  }
  call_host(c.attributes, types, operands, results);
  return arrays;
}

std::vector<HostArray> effect_reference(const ReferenceContext& c) {
  return called_reference(c, 1);
}

std::vector<HostArray> pure_reference(const ReferenceContext& c) { return called_reference(c, 0); }

Sample pure_sample(std::vector<SampleOperand> operands, std::vector<Type> results,
                   std::int64_t num_batch = 0) {
  const ir::HostCallback callback{.call = nullptr, .results = std::move(results)};
  return {.operands = std::move(operands),
          .attributes = {{"callback", callback}, {"num_batch", num_batch}}};
}

Sample effect_sample(std::vector<SampleOperand> operands, std::vector<Type> results = {},
                     std::int64_t num_batch = 0) {
  operands.insert(operands.begin(), {u32({}), 1.0, 4e9});
  return pure_sample(std::move(operands), std::move(results), num_batch);
}

}  // namespace

void call_host(const Attributes& attributes, std::vector<Type> types,
               std::vector<const std::byte*> operands, std::vector<std::byte*> results) {
  const auto& callback = attributes.get<ir::HostCallback>("callback");
  const auto num_batch = static_cast<std::ptrdiff_t>(attributes.integer("num_batch"));
  std::int64_t count = 1;
  if (num_batch > 0) {
    const Shape& shape = types.at(0).shape;
    count = num_elements(Shape(shape.begin(), shape.begin() + num_batch));
  }
  std::vector<std::int64_t> operand_bytes;
  for (Type& type : types) {
    type.shape.erase(type.shape.begin(), type.shape.begin() + num_batch);
    operand_bytes.push_back(size_bytes(type));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (callback.call != nullptr) (*callback.call)(types, operands, results);
    for (std::size_t k = 0; k < operands.size(); ++k) operands[k] += operand_bytes[k];
    for (std::size_t k = 0; k < results.size(); ++k) {
      const std::int64_t bytes = size_bytes(callback.results[k]);
      if (callback.call == nullptr) std::memset(results[k], 0, static_cast<std::size_t>(bytes));
      results[k] += bytes;
    }
  }
}

const OpRecord host_callback_op{
    .name = "host_callback",
    .doc =
        "The token, operand 0, and what `callback` gives back for the values of the other operands "
        "while the program runs. It is called once for each index of their `num_batch` leading "
        "dimensions. The equation is neither removed nor repeated nor moved over another one.",
    .source = "jax.experimental.io_callback",
    .attributes = AttributeNames{"callback", "num_batch"},
    .types = TypeSet::any,
    .shape = effect_shape,
    .vjp = not_differentiable("the called function has no derivative; use custom_vjp"),
    .batch = effect_batch,
    .factors = whole_factors,
    .pattern = Pattern::opaque,
    .host = "host_callback",
    .stablehlo = not_in_stablehlo(
        "it calls a function of the host program",
        "use the host engine, or return the array from the function and print it outside"),
    .reference = effect_reference,
    .cost = no_flops,
    .samples = Samples{effect_sample({{f32({5, 6})}}),
                       effect_sample({{i32({10, 1}), -9.0, 9.0}, {f32({10, 3})}}, {}, 1),
                       effect_sample({{f32({3, 2})}}, {i32({}), f32({2, 5})}, 1)},
};

const OpRecord pure_callback_op{
    .name = "pure_callback",
    .doc =
        "What `callback` gives back for the values of the operands while the program runs; zeros "
        "if there is no function, as in a program that was read from text. It is called once for "
        "each index of their `num_batch` leading dimensions, and may be called more often or, if "
        "nothing needs the results, not at all.",
    .source = "jax.pure_callback",
    .attributes = AttributeNames{"callback", "num_batch"},
    .types = TypeSet::any,
    .shape = pure_shape,
    .vjp = not_differentiable("the called function has no derivative; use custom_vjp"),
    .batch = pure_batch,
    .factors = whole_factors,
    .pattern = Pattern::opaque,
    .host = "pure_callback",
    .stablehlo = not_in_stablehlo("it calls a function of the host program",
                                  "use the host engine, or compute it outside of the function"),
    .reference = pure_reference,
    .cost = no_flops,
    .samples = Samples{pure_sample({{f32({5, 6})}}, {f32({5, 1})}),
                       pure_sample({{i32({10, 1}), -9.0, 9.0}, {f32({10, 3})}},
                                   {f32({3}), {DType::boolean, {}}}, 1)},
};

OpFamily callback_ops() { return {&host_callback_op, &pure_callback_op}; }

}  // namespace tessera::ops
