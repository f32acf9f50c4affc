// The shardings that the user or the partitioner asks for, and the collectives that establish them.
// Shapes in the IR are global: these ops change shardings, never values.
#include <algorithm>
#include <functional>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

std::vector<HostArray> identity_reference(const ReferenceContext& c) {
  std::vector<HostArray> results;
  for (const HostArray* operand : c.operands) results.push_back(*operand);
  return results;
}

VjpRule placed_late() { return not_differentiable("inserted after differentiation"); }

std::vector<Type> reduction_shape(const ShapeContext& c) {
  const Reduction reduction = reduction_named(string_of(c, "reduction"));
  if (reduction == Reduction::bit_or) return c.operands;
  const bool is_logical = reduction == Reduction::logical_and || reduction == Reduction::logical_or;
  for (const Type& operand : c.operands) {
    if ((operand.dtype == DType::boolean) == is_logical) continue;
    c.fail("the reduction '" + string_of(c, "reduction") + "' does not support this dtype",
           "and, or for booleans; sum, max, min for numbers; bit_or for both",
           "use a reduction that supports the dtype");
  }
  for (const Type& operand : c.operands) {
    if (!is_half(operand.dtype) || reduction != Reduction::sum) continue;
    c.fail("partial sums of f16 and bf16 must be f32", "a sum of f32 that is rounded once",
           "convert the operand to f32 before the sum and convert the result back");
  }
  return c.operands;
}

double reduction_cost(const Attributes&, const std::vector<Type>& operands,
                      const std::vector<Type>&) {
  double flops = 0.0;
  for (const Type& operand : operands) flops += static_cast<double>(num_elements(operand.shape));
  return flops;
}

std::vector<Type> constraint_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  if (c.attributes.has("group")) integer_of(c, "group");
  for (const auto& [attribute, value] : c.attributes.items()) {
    const Sharding* sharding = std::get_if<Sharding>(&value);
    if (attribute != "sharding") continue;
    if (sharding == nullptr || sharding->dims.size() != c.operands[0].shape.size()) {
      c.fail("the sharding has the wrong rank",
             "a sharding with " + std::to_string(c.operands[0].rank()) + " dimensions",
             "give with_sharding_constraint a spec with one entry per dimension");
    }
    const std::vector<std::size_t>& open = sharding->open;
    if (!std::is_sorted(open.begin(), open.end(), std::less_equal<>()) ||
        (!open.empty() && open.back() >= sharding->dims.size())) {
      c.fail("the open dimensions are not valid",
             "distinct dimensions of the operand, in ascending order",
             "list each open dimension once");
    }
  }
  return c.operands;
}

std::vector<Type> inspect_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  for (const auto& [attribute, value] : c.attributes.items()) {
    if (attribute != "callback" || std::holds_alternative<ir::ShardingWatcher>(value)) continue;
    c.fail("the attribute callback is of the wrong kind", "callback=watcher",
           "write callback=watcher; functions are passed to inspect_array_sharding");
  }
  return c.operands;
}

Sample inspect_sample(Type type) {
  return {.operands = {{std::move(type)}}, .attributes = {{"callback", ir::ShardingWatcher{}}}};
}

Samples moved_samples(const Attributes& attributes = {}) {
  return {{.operands = {{f32({5, 6})}}, .attributes = attributes},
          {.operands = {{f32({12, 1})}, {f32({10})}}, .attributes = attributes},
          {.operands = {{i32({3, 6}), -9.0, 9.0}}, .attributes = attributes}};
}

/// moved_samples, plus one of bf16, a dtype that is moved and compared but not added.
Samples moved_samples_of_all(const Attributes& attributes = {}) {
  Samples samples = moved_samples(attributes);
  samples.push_back({.operands = {{bf16({5, 6})}}, .attributes = attributes});
  return samples;
}

Sample constraint_sample(Type type) {
  Sharding sharding = replicated_sharding(type.rank());
  return {.operands = {{std::move(type)}}, .attributes = {{"sharding", std::move(sharding)}}};
}

const char* const kSource = "GSPMD (Xu et al. 2021), with mesh axes instead of replica groups";

/// A record of an op that leaves the values as they are and moves them between devices.
OpRecord moving(const char* name, std::string_view hlo, const char* doc,
                const char* source = kSource) {
  return {.name = name,
          .doc = doc,
          .source = source,
          .hlo = hlo,
          .attributes = AttributeNames{},
          .types = TypeSet::any,
          .shape = same_as_operands,
          .vjp = placed_late(),
          .batch = not_batched("inserted after batching"),
          .factors = identity_factors,
          .pattern = Pattern::opaque,
          .host = "move",
          .stablehlo = hlo::moved,
          .reference = identity_reference,
          .cost = no_flops,
          .samples = moved_samples_of_all()};
}

/// A record of an op that turns partial results into whole ones; its samples use this reduction.
OpRecord reducing(const char* name, std::string_view hlo, const char* doc, const char* reduction) {
  return {.name = name,
          .doc = doc,
          .source = kSource,
          .hlo = hlo,
          .attributes = AttributeNames{"reduction"},
          .types = TypeSet::any,
          .shape = reduction_shape,
          .vjp = placed_late(),
          .batch = not_batched("inserted after batching"),
          .factors = identity_factors,
          .pattern = Pattern::opaque,
          .host = "combine",
          .stablehlo = hlo::moved,
          .reference = identity_reference,
          .cost = reduction_cost,
          .samples = std::string_view(reduction) == "sum"
                         ? moved_samples({{"reduction", std::string(reduction)}})
                         : moved_samples_of_all({{"reduction", std::string(reduction)}})};
}

}  // namespace

const OpRecord all_gather_op =
    moving("all_gather", "all-gather",
           "Every device receives the shards that it lacks along some mesh axes.");

const OpRecord all_reduce_op =
    reducing("all_reduce", "all-reduce",
             "Partial results are combined; every device receives the whole result.", "sum");

const OpRecord all_slice_op =
    moving("all_slice", {}, "Every device keeps its shard of what it holds; nothing moves.");

const OpRecord all_to_all_op =
    moving("all_to_all", {}, "A split along some mesh axes moves from one dimension to another.");

const OpRecord collective_permute_op =
    moving("collective_permute", {}, "Devices exchange whole shards.");

const OpRecord halo_exchange_op = moving(
    "halo_exchange", {},
    "Every device receives the rows around its shard that its part of the next equation reads.",
    "GSPMD (Xu et al. 2021), halo exchange, for any affine map of rows");

const OpRecord inspect_sharding_op{
    .name = "inspect_sharding",
    .doc =
        "The operand. `callback` receives its sharding when the program is partitioned. The "
        "equation is kept as long as the operand is needed, even if nothing uses the result.",
    .source = "jax.debug.inspect_array_sharding",
    .attributes = AttributeNames{"callback"},
    .types = TypeSet::any,
    .shape = inspect_shape,
    .vjp = per_operand({[](VjpContext& c) { return c.cotangent(); }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::view,
    .host = "stop_gradient",
    .stablehlo = stablehlo_operands(),
    .reference = identity_reference,
    .cost = no_flops,
    .samples = Samples{inspect_sample(f32({5, 6})), inspect_sample(f32({12, 1})),
                       inspect_sample(i32({10}))},
};

const OpRecord reduce_scatter_op =
    reducing("reduce_scatter", {},
             "Partial results are combined; every device receives its shard of the result.", "max");

const OpRecord sharding_constraint_op{
    .name = "sharding_constraint",
    .doc =
        "The operand with this `sharding`; propagation decides how open dimensions (`?`) are "
        "split. It gives those of the same `group` the same sharding.",
    .source = "jax.lax.with_sharding_constraint, jax.experimental.shard_alike",
    .hlo = "copy",
    .attributes = AttributeNames{"sharding"},
    .types = TypeSet::any,
    .shape = constraint_shape,
    .vjp = per_operand({[](VjpContext& c) {
      return c.b.emit("sharding_constraint", c.equation.attributes, {c.cotangent()});
    }}),
    .batch = [](BatchContext& c) -> std::vector<ValueId> {
      Sharding sharding = c.equation.attributes.get<Sharding>("sharding");
      sharding.dims.insert(sharding.dims.begin(), c.axis.atoms);
      for (std::size_t& dim : sharding.open) ++dim;
      // If no devices hold the batch elements, the caller decides how they are split.
      if (c.axis.atoms.empty()) sharding.open.insert(sharding.open.begin(), 0);
      Attributes attributes = c.equation.attributes;
      attributes.set("sharding", std::move(sharding));
      return {c.b.emit("sharding_constraint", std::move(attributes), {c.operands[0]})};
    },
    .factors = elementwise_factors,
    .pattern = Pattern::view,
    .host = "sharding_constraint",
    .stablehlo = stablehlo_operands(),
    .reference = identity_reference,
    .cost = no_flops,
    .samples = Samples{constraint_sample(f32({5, 6})), constraint_sample(f32({12, 1})),
                       constraint_sample(i32({10}))},
    .optional_attributes = {"group"},
};

OpFamily collective_ops() {
  return {&all_gather_op,       &all_reduce_op,         &all_slice_op,
          &all_to_all_op,       &collective_permute_op, &halo_exchange_op,
          &inspect_sharding_op, &reduce_scatter_op,     &sharding_constraint_op};
}

}  // namespace tessera::ops
