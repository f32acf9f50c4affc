// stage_end, which marks where the stages of a pipeline end.
#include "ops/control/control.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

std::vector<Type> stage_end_shape(const ShapeContext& c) {
  const std::int64_t stage = integer_of(c, "stage");
  if (stage < 0) c.fail("the stage is negative", "a stage of 0 or more", "count the marks from 0");
  boolean_of(c, "backward");
  return same_as_operand(c);
}

std::int64_t stage_of(const Attributes& attributes) { return attributes.integer("stage"); }

Sample stage_end_sample(bool is_backward) {
  return {.operands = {{is_backward ? f32({12, 1}) : f32({5, 6})}},
          .attributes = {{"backward", is_backward}, {"stage", std::int64_t{1}}}};
}

}  // namespace

const OpRecord stage_end_op{
    .name = "stage_end",
    .doc =
        "x, the last value of stage `stage` of a pipeline. The backward pass of that stage begins "
        "with its cotangent.",
    .source = "JaxPP, mark_stage_end",
    .attributes = AttributeNames{"backward", "stage"},
    .types = TypeSet::any,
    .shape = stage_end_shape,
    .vjp = per_operand({[](VjpContext& c) {
      const bool is_backward = c.equation.attributes.get<bool>("backward");
      return stage_end(c.b, c.cotangent(), stage_of(c.equation.attributes), !is_backward);
    }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::view,
    .host = "stop_gradient",
    .stablehlo = stablehlo_operands(),
    .reference = [](const ReferenceContext& c) { return std::vector<HostArray>{*c.operands[0]}; },
    .cost = no_flops,
    .samples = Samples{stage_end_sample(false), stage_end_sample(true)},
    .linearity = Linearity::each,
};

ValueId stage_end(Builder& b, ValueId x, std::int64_t stage, bool is_backward) {
  return b.emit(stage_end_op, {{"backward", is_backward}, {"stage", stage}}, {x});
}

OpFamily mark_ops() { return {&stage_end_op}; }

}  // namespace tessera::ops
