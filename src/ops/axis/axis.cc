#include "ops/axis/axis.h"

#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

NamedAxis axis_of(const Equation& equation) {
  return {.name = equation.attributes.get<std::string>("axis"),
          .size = equation.attributes.integer("size")};
}

Attributes attributes_of(const NamedAxis& axis) {
  return {{"axis", axis.name}, {"size", axis.size}};
}

/// Whether the equation is over the axis that becomes the batch dimension.
bool is_own_axis(const BatchContext& c) {
  return c.axis.name == c.equation.attributes.get<std::string>("axis");
}

ValueId all_to_all(Builder& b, ValueId x, const NamedAxis& axis, bool is_pinned) {
  Attributes attributes = attributes_of(axis);
  attributes.set("is_pinned", is_pinned);
  return b.emit("axis_all_to_all", std::move(attributes), {x});
}

std::int64_t size_of(const ShapeContext& c) {
  string_of(c, "axis");
  const std::int64_t size = integer_of(c, "size");
  if (size < 1) c.fail("the axis has no elements", "size 1 or more", "give the size of the axis");
  return size;
}

// --- shapes

std::vector<Type> index_shape(const ShapeContext& c) {
  expect_operands(c, 0);
  size_of(c);
  return {i32({})};
}

std::vector<Type> gather_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  return {{c.operands[0].dtype, with_first(size_of(c), c.operands[0].shape)}};
}

std::vector<Type> all_to_all_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  boolean_of(c, "is_pinned");
  const std::int64_t size = size_of(c);
  const Type& type = c.operands[0];
  if (type.rank() == 0 || type.shape[0] != size) {
    c.fail("dimension 0 does not have one slice per element of the axis",
           fmt::format("an array with {} slices", size), "reshape the operand");
  }
  return {type};
}

std::vector<Type> permute_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  const std::int64_t size = size_of(c);
  if (!is_permutation(ints_of(c, "sources"), size)) {
    c.fail("sources is not a permutation of the elements of the axis",
           fmt::format("every number from 0 to {} once", size - 1),
           "name the source of every element once");
  }
  return {c.operands[0]};
}

// --- derivatives of the sum of the values that all elements compute

ValueId gather_vjp(VjpContext& c) {
  const ValueId received = axis_all_to_all(c.b, c.cotangent(), axis_of(c.equation));
  return reduce_sum(c.b, received, {0});
}

ValueId all_to_all_vjp(VjpContext& c) {
  const bool is_pinned = c.equation.attributes.get<bool>("is_pinned");
  return all_to_all(c.b, c.cotangent(), axis_of(c.equation), is_pinned);
}

ValueId permute_vjp(VjpContext& c) {
  return axis_permute(c.b, c.cotangent(), axis_of(c.equation),
                      inverse_of(c.equation.attributes.ints("sources")));
}

// --- batching

std::vector<ValueId> index_batch(BatchContext& c) { return {iota(c.b, DType::i32, {c.size}, 0)}; }

std::vector<ValueId> gather_batch(BatchContext& c) {
  if (is_own_axis(c)) {
    c.is_result_batched[0] = false;
    return {c.batched(0)};
  }
  return {move_to_front(c.b, axis_gather(c.b, c.operands[0], axis_of(c.equation)), 1)};
}

/// Keeps `x`, which has the batch dimension, on the devices that hold its elements.
ValueId on_own_device(BatchContext& c, ValueId x) {
  Sharding sharding = replicated_sharding(c.b.type(x).rank());
  sharding.dims[0] = c.axis.atoms;
  for (std::size_t dim = 1; dim < sharding.dims.size(); ++dim) {
    if (!c.axis.is_manual) sharding.open.push_back(dim);
  }
  return sharding_constraint(c.b, x, std::move(sharding));
}

std::vector<ValueId> all_to_all_batch(BatchContext& c) {
  const bool is_pinned = c.equation.attributes.get<bool>("is_pinned");
  if (!is_own_axis(c)) {
    const ValueId swapped = move_to_front(c.b, c.batched(0), 1);
    return {move_to_front(c.b, all_to_all(c.b, swapped, axis_of(c.equation), is_pinned), 1)};
  }
  if (!is_pinned || c.axis.atoms.empty()) return {move_to_front(c.b, c.batched(0), 1)};
  return {on_own_device(c, move_to_front(c.b, on_own_device(c, c.batched(0)), 1))};
}

std::vector<ValueId> permute_batch(BatchContext& c) {
  const Ints& sources = c.equation.attributes.ints("sources");
  if (is_own_axis(c)) return {permute(c.b, c.batched(0), 0, sources)};
  return {axis_permute(c.b, c.operands[0], axis_of(c.equation), sources)};
}

// --- references: every element holds the same value, and these compute it for the first element

std::vector<HostArray> index_reference(const ReferenceContext& c) {
  return one_result(HostArray(c.results[0]));
}

/// Repeats the operand until the result is full.
std::vector<HostArray> repeat_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const auto from = c.operands[0]->bytes();
  const auto to = result.bytes();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i % from.size()];
  return one_result(std::move(result));
}

Samples alone(const std::vector<SampleOperand>& operands, Attributes more = {}) {
  more.set("axis", std::string("data"));
  more.set("size", std::int64_t{1});
  Samples samples;
  for (const SampleOperand& operand : operands) {
    samples.push_back({.operands = {operand}, .attributes = more});
  }
  return samples;
}

/// Maps over an axis are gone before a program is partitioned.
StableHloRule unmapped() {
  return not_in_stablehlo("no shard_map or vmap has mapped its axis",
                          "call it within shard_map, or name the axis in vmap's options");
}

}  // namespace

const OpRecord axis_all_to_all_op{
    .name = "axis_all_to_all",
    .doc =
        "Slice j along dimension 0 goes to element j of the mapped axis; slice i of the result "
        "came from element i. With `is_pinned` the devices of each element hold its slices before "
        "and after the exchange.",
    .source = "jax.lax.all_to_all",
    .attributes = AttributeNames{"axis", "is_pinned", "size"},
    .types = TypeSet::any,
    .shape = all_to_all_shape,
    .vjp = per_operand({all_to_all_vjp}),
    .batch = all_to_all_batch,
    .factors = whole_factors,
    .pattern = Pattern::control,
    .host = "axis_all_to_all",
    .stablehlo = unmapped(),
    .reference = repeat_reference,
    .cost = no_flops,
    .samples = alone({{f32({1, 6})}, {i32({1, 3, 2}), -9.0, 9.0}}, {{"is_pinned", true}}),
};

const OpRecord axis_gather_op{
    .name = "axis_gather",
    .doc = "The operands of all elements of the mapped axis, stacked along a new dimension 0.",
    .source = "jax.lax.all_gather",
    .attributes = AttributeNames{"axis", "size"},
    .types = TypeSet::any,
    .shape = gather_shape,
    .vjp = per_operand({gather_vjp}),
    .batch = gather_batch,
    .factors = whole_factors,
    .pattern = Pattern::control,
    .host = "axis_gather",
    .stablehlo = unmapped(),
    .reference = repeat_reference,
    .cost = no_flops,
    .samples = alone({{f32({5, 6})}, {f32({})}, {i32({10}), -9.0, 9.0}}),
};

const OpRecord axis_index_op{
    .name = "axis_index",
    .doc = "The index of the element along the mapped axis.",
    .source = "jax.lax.axis_index",
    .attributes = AttributeNames{"axis", "size"},
    .types = TypeSet::any,
    .shape = index_shape,
    .vjp = zero_vjp,
    .batch = index_batch,
    .factors = whole_factors,
    .pattern = Pattern::control,
    .host = "axis_index",
    .stablehlo = unmapped(),
    .reference = index_reference,
    .cost = no_flops,
    .samples = Samples{{.operands = {}, .attributes = attributes_of({"data", 1})},
                       {.operands = {}, .attributes = attributes_of({"model", 1})}},
};

const OpRecord axis_permute_op{
    .name = "axis_permute",
    .doc = "For element i of the mapped axis, the operand of element sources[i].",
    .source = "jax.lax.ppermute",
    .attributes = AttributeNames{"axis", "size", "sources"},
    .types = TypeSet::any,
    .shape = permute_shape,
    .vjp = per_operand({permute_vjp}),
    .batch = permute_batch,
    .factors = whole_factors,
    .pattern = Pattern::control,
    .host = "axis_permute",
    .stablehlo = unmapped(),
    .reference = repeat_reference,
    .cost = no_flops,
    .samples = alone({{f32({5, 6})}, {i32({10, 1}), -9.0, 9.0}}, {{"sources", Ints{0}}}),
};

OpFamily axis_ops() {
  return {&axis_all_to_all_op, &axis_gather_op, &axis_index_op, &axis_permute_op};
}

ValueId axis_index(Builder& b, const NamedAxis& axis) {
  return b.emit("axis_index", attributes_of(axis), {});
}

ValueId axis_index(Builder& b, const std::vector<NamedAxis>& axes) {
  if (axes.empty()) return scalar(b, 0, DType::i32);
  ValueId index = axis_index(b, axes[0]);
  for (std::size_t i = 1; i < axes.size(); ++i) {
    const ValueId size = scalar(b, static_cast<double>(axes[i].size), DType::i32);
    index = mul(b, index, size);
    index = add(b, index, axis_index(b, axes[i]));
  }
  return index;
}

ValueId axis_gather(Builder& b, ValueId x, const NamedAxis& axis) {
  return b.emit("axis_gather", attributes_of(axis), {x});
}

ValueId axis_all_to_all(Builder& b, ValueId x, const NamedAxis& axis) {
  return all_to_all(b, x, axis, false);
}

ValueId axis_permute(Builder& b, ValueId x, const NamedAxis& axis, Ints sources) {
  Attributes attributes = attributes_of(axis);
  attributes.set("sources", std::move(sources));
  return b.emit("axis_permute", std::move(attributes), {x});
}

bool is_axis_op(const Equation& equation) {
  return is(equation, axis_all_to_all_op) || is(equation, axis_gather_op) ||
         is(equation, axis_index_op) || is(equation, axis_permute_op);
}

bool is_over_axis(const Equation& equation, std::string_view axis) {
  return is_axis_op(equation) && equation.attributes.get<std::string>("axis") == axis;
}

bool is_same_for_all(const Equation& equation) { return is(equation, axis_gather_op); }

ValueId without_axis(Builder& b, const Equation& equation, const std::vector<ValueId>& operands) {
  const NamedAxis axis = axis_of(equation);
  if (axis.size != 1) {
    throw UserError({.what = *equation.op->name + ": no mapped axis has this name",
                     .where = equation.span,
                     .found = fmt::format("axis '{}' with {} elements", axis.name, axis.size),
                     .wanted = "a function that shard_map or vmap maps over the axis",
                     .cure = "call it within shard_map, or name the axis in vmap's options"});
  }
  if (operands.empty()) return scalar(b, 0.0, DType::i32);
  return is(equation, axis_gather_op) ? repeat(b, operands[0], 1) : operands[0];
}

}  // namespace tessera::ops
