// Elementwise comparison, selection and clamping.
#include <algorithm>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

template <typename T>
bool holds(const std::string& direction, T x, T y) {
  if (direction == "eq") return x == y;
  if (direction == "ne") return x != y;
  if (direction == "lt") return x < y;
  if (direction == "le") return x <= y;
  if (direction == "gt") return x > y;
  return x >= y;
}

std::vector<Type> compare_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_same_types(c);
  constexpr std::string_view kDirections[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  const std::string& direction = string_of(c, "direction");
  if (std::find(std::begin(kDirections), std::end(kDirections), direction) ==
      std::end(kDirections)) {
    c.fail("unknown comparison '" + direction + "'", "eq, ne, lt, le, gt or ge",
           "use one of these names");
  }
  return {boolean(c.operands[0].shape)};
}

std::vector<HostArray> compare_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const auto& direction = c.attributes.get<std::string>("direction");
  dispatch(c.operands[0]->type().dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = c.operands[0]->data<T>();
    const auto y = c.operands[1]->data<T>();
    const auto out = result.data<bool>();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = holds(direction, x[i], y[i]);
  });
  return one_result(std::move(result));
}

Samples compare_samples() {
  const Attributes less{{"direction", std::string("lt")}};
  const Attributes equal{{"direction", std::string("eq")}};
  return {{.operands = {{f32({5, 6})}, {f32({5, 6})}}, .attributes = less},
          {.operands = {{f32({12, 1})}, {f32({12, 1})}},
           .attributes = {{"direction", std::string("ge")}}},
          {.operands = {{i32({10})}, {i32({10})}}, .attributes = equal},
          {.operands = {{bf16({5, 6})}, {bf16({5, 6})}}, .attributes = equal},
          {.operands = {{u32({3, 6}), 0.0, 4e9}, {u32({3, 6}), 0.0, 4e9}},
           .attributes = {{"direction", std::string("gt")}}},
          {.operands = {{boolean({6}), 0.0, 1.0}, {boolean({6}), 0.0, 1.0}},
           .attributes = {{"direction", std::string("ne")}}}};
}

std::vector<Type> select_shape(const ShapeContext& c) {
  expect_operands(c, 3);
  if (c.operands[0].dtype != DType::boolean) {
    c.fail("the condition is not boolean", "a bool array as the first operand",
           "compare first, for example where(not_equal(x, 0), ...)");
  }
  expect_same_types(c, 1);
  if (c.operands[0].shape != c.operands[1].shape) {
    c.fail("the condition and the values have different shapes", "the same shape for all operands",
           "broadcast the condition with broadcast_to");
  }
  return {c.operands[1]};
}

std::vector<HostArray> select_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const auto is_true = c.operands[0]->data<bool>();
  for (std::size_t i = 0; i < is_true.size(); ++i) {
    copy_element(result, i, *c.operands[is_true[i] ? 1 : 2], i);
  }
  return one_result(std::move(result));
}

/// The cotangent where `pred` is true, zero elsewhere.
ValueId cotangent_where(VjpContext& c, ValueId pred) {
  return select(c.b, pred, c.cotangent(), full_like(c.b, 0.0, c.cotangent()));
}

// Operands of clamp: low, x, high.
ValueId clamp_vjp_low(VjpContext& c) {
  const ValueId is_below = compare(c.b, "gt", c.operand(0), c.operand(1));
  const ValueId is_range = compare(c.b, "lt", c.operand(0), c.operand(2));
  return cotangent_where(c, bitwise_and(c.b, is_below, is_range));
}

ValueId clamp_vjp_x(VjpContext& c) {
  const ValueId is_above_low = compare(c.b, "gt", c.operand(1), c.operand(0));
  const ValueId is_below_high = compare(c.b, "lt", c.operand(1), c.operand(2));
  return cotangent_where(c, bitwise_and(c.b, is_above_low, is_below_high));
}

ValueId clamp_vjp_high(VjpContext& c) {
  return cotangent_where(c, compare(c.b, "lt", c.operand(2), c.operand(1)));
}

Sample clamp_sample(const Shape& shape) {
  return {.operands = {{f32(shape), -1.0, -0.8}, {f32(shape), -2.0, 2.0}, {f32(shape), 0.8, 1.0}}};
}

// --- StableHLO

hlo::Values compare_form(hlo::FormContext& c) {
  return {c.w.compare(c.attributes().get<std::string>("direction"), c.x(0), c.x(1))};
}

}  // namespace

const OpRecord clamp_op{
    .name = "clamp",
    .doc = "min(max(x, low), high); the operands are low, x and high.",
    .source = "StableHLO, clamp",
    .hlo = "clamp",
    .attributes = AttributeNames{},
    .types = TypeSet::numbers,
    .shape = [](const ShapeContext& c) -> std::vector<Type> {
      expect_operands(c, 3);
      expect_same_types(c);
      return {c.operands[1]};
    },
    .vjp = per_operand({clamp_vjp_low, clamp_vjp_x, clamp_vjp_high}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "clamp",
    .stablehlo = "stablehlo.clamp {0}, {1}, {2} : {type}",
    .reference = map3<Numbers>(
        [](auto low, auto x, auto high) { return lesser_of(greater_of(x, low), high); }),
    .cost = flops_per_element(2),
    .samples =
        Samples{
            clamp_sample({5, 6}),
            clamp_sample({12, 1}),
            {.operands = {{i32({10}), -5.0, 0.0}, {i32({10}), -9.0, 9.0}, {i32({10}), 1.0, 5.0}}}},
};

const OpRecord compare_op{
    .name = "compare",
    .doc =
        "Whether x is equal (eq), not equal (ne), less (lt), at most (le), greater (gt) or at "
        "least (ge) y. Comparisons with NaN are false except ne; -0 equals +0.",
    .source = "StableHLO, compare",
    .hlo = "compare",
    .attributes = AttributeNames{"direction"},
    .types = TypeSet::any,
    .shape = compare_shape,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "compare_{direction}",
    .stablehlo = compare_form,
    .reference = compare_reference,
    .cost = flops_per_element(1),
    .samples = compare_samples(),
};

const OpRecord select_op{
    .name = "select",
    .doc = "The second operand where the first is true, else the third.",
    .source = "StableHLO, select",
    .hlo = "select",
    .attributes = AttributeNames{},
    .types = TypeSet::any,
    .shape = select_shape,
    .vjp = per_operand({[](VjpContext&) { return ir::kNoValue; },
                        [](VjpContext& c) { return cotangent_where(c, c.operand(0)); },
                        [](VjpContext& c) {
                          const ValueId zero = full_like(c.b, 0.0, c.cotangent());
                          return select(c.b, c.operand(0), zero, c.cotangent());
                        }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "select",
    .stablehlo = "stablehlo.select {0}, {1}, {2} : {type0}, {type}",
    .reference = select_reference,
    .cost = no_flops,
    .samples = Samples{{.operands = {{boolean({5, 6}), 0.0, 1.0}, {f32({5, 6})}, {f32({5, 6})}}},
                       {.operands = {{boolean({12, 1}), 0.0, 1.0}, {f32({12, 1})}, {f32({12, 1})}}},
                       {.operands = {{boolean({10}), 0.0, 1.0},
                                     {i32({10}), -9.0, 9.0},
                                     {i32({10}), -9.0, 9.0}}},
                       {.operands = {{boolean({5, 6}), 0.0, 1.0}, {bf16({5, 6})}, {bf16({5, 6})}}},
                       {.operands = {{boolean({}), 0.0, 1.0}, {f32({})}, {f32({})}}}},
    .linearity = Linearity::rest,
};

OpFamily compare_select_ops() { return {&clamp_op, &compare_op, &select_op}; }

}  // namespace tessera::ops
