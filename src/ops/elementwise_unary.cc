// Elementwise functions of one operand.
#include "ops/ops.h"
#include "ops/reference/erf_inv.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

// --- StableHLO

/// StableHLO does not define abs and sign for unsigned numbers.
hlo::Values abs_form(hlo::FormContext& c) {
  const DType dtype = c.x().type.dtype;
  if (is_integer(dtype) && !is_signed(dtype)) return c.operands;
  return {c.w.unary("abs", c.x())};
}

hlo::Values sign_form(hlo::FormContext& c) {
  const DType dtype = c.x().type.dtype;
  if (is_float(dtype) || is_signed(dtype)) return {c.w.unary("sign", c.x())};
  return {c.w.binary("minimum", c.x(), c.w.constant(1, c.x().type))};
}

}  // namespace

const OpRecord abs_op{
    .name = "abs",
    .doc = "The absolute value; the most negative integer stays as it is.",
    .source = "StableHLO, abs",
    .hlo = "abs",
    .attributes = AttributeNames{},
    .types = TypeSet::numbers,
    .shape = same_as_operand,
    .vjp = per_operand(
        {[](VjpContext& c) { return mul(c.b, c.cotangent(), sign(c.b, c.operand(0))); }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "abs",
    .stablehlo = abs_form,
    .reference = map1<Numbers>([](auto x) {
      if constexpr (std::is_floating_point_v<decltype(x)>) return std::fabs(x);
      return is_negative(x) ? wrapping_neg(x) : x;
    }),
    .cost = flops_per_element(1),
    .samples = number_samples(1, 0.5, 2.0),
};

const OpRecord cos_op{
    .name = "cos",
    .doc = "The cosine of an angle in radians.",
    .source = "StableHLO, cosine",
    .hlo = "cosine",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = per_operand(
        {[](VjpContext& c) { return neg(c.b, mul(c.b, c.cotangent(), sin(c.b, c.operand(0)))); }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "cos",
    .stablehlo = "stablehlo.cosine {0} : {type}",
    .reference = map_real([](double x) { return std::cos(x); }),
    .cost = flops_per_element(10),
    .samples = float_samples(1, -3.0, 3.0, kFunctionUlp),
};

const OpRecord erf_inv_op{
    .name = "erf_inv",
    .doc =
        "The inverse of the error function, for x in (-1, 1). In f32 it is Giles' polynomial, with "
        "fused multiply-adds; normal random numbers are computed with it.",
    .source = "CHLO, erf_inv; M. Giles, Approximating the erfinv function",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = per_operand({[](VjpContext& c) {
      // d/dx erf_inv(x) = sqrt(pi) / 2 * exp(erf_inv(x)^2)
      constexpr double kHalfRootPi = 0.88622692545275801365;
      const ValueId slope = exp(c.b, square(c.b, c.result()));
      const ValueId factor = full_like(c.b, kHalfRootPi, c.result());
      return mul(c.b, factor, mul(c.b, c.cotangent(), slope));
    }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "erf_inv",
    .stablehlo = "chlo.erf_inv {0} : {type} -> {type}",
    .reference = map1<Floats>([](auto x) { return erf_inv_value(x); }),
    .cost = flops_per_element(30),
    .samples = float_samples(1, -0.9, 0.9, kFunctionUlp),
};

const OpRecord exp_op{
    .name = "exp",
    .doc = "e to the power x.",
    .source = "StableHLO, exponential",
    .hlo = "exponential",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = per_operand({[](VjpContext& c) { return mul(c.b, c.cotangent(), c.result()); }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "exp",
    .stablehlo = "stablehlo.exponential {0} : {type}",
    .reference = map_real([](double x) { return std::exp(x); }),
    .cost = flops_per_element(10),
    .samples = float_samples(1, -3.0, 3.0, kFunctionUlp),
};

const OpRecord expm1_op{
    .name = "expm1",
    .doc = "exp(x) - 1, accurate near zero.",
    .source = "StableHLO, exponential_minus_one",
    .hlo = "exponential-minus-one",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = per_operand({[](VjpContext& c) {
      return mul(c.b, c.cotangent(), add(c.b, c.result(), full_like(c.b, 1.0, c.result())));
    }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "expm1",
    .stablehlo = "stablehlo.exponential_minus_one {0} : {type}",
    .reference = map_real([](double x) { return std::expm1(x); }),
    .cost = flops_per_element(12),
    .samples = float_samples(1, -2.0, 2.0, kFunctionUlp),
};

const OpRecord floor_op{
    .name = "floor",
    .doc = "The largest integer not greater than x.",
    .source = "StableHLO, floor",
    .hlo = "floor",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "floor",
    .stablehlo = "stablehlo.floor {0} : {type}",
    .reference = map1<Floats>([](auto x) { return std::floor(x); }),
    .cost = flops_per_element(1),
    .samples = float_samples(1, -3.0, 3.0),
};

const OpRecord is_finite_op{
    .name = "is_finite",
    .doc = "Whether x is neither infinite nor NaN.",
    .source = "StableHLO, is_finite",
    .hlo = "is-finite",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = [](const ShapeContext& c) -> std::vector<Type> {
      expect_operands(c, 1);
      return {boolean(c.operands[0].shape)};
    },
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "is_finite",
    .stablehlo = "stablehlo.is_finite {0} : ({type0}) -> {type}",
    .reference = map1<Floats, bool>([](auto x) { return std::isfinite(x); }),
    .cost = flops_per_element(1),
    .samples = float_samples(1, -2.0, 2.0),
};

const OpRecord log_op{
    .name = "log",
    .doc = "The natural logarithm.",
    .source = "StableHLO, log",
    .hlo = "log",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = per_operand({[](VjpContext& c) { return div(c.b, c.cotangent(), c.operand(0)); }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "log",
    .stablehlo = "stablehlo.log {0} : {type}",
    .reference = map_real([](double x) { return std::log(x); }),
    .cost = flops_per_element(10),
    .samples = float_samples(1, 0.5, 3.0, kFunctionUlp),
};

const OpRecord log1p_op{
    .name = "log1p",
    .doc = "log(1 + x), accurate near zero.",
    .source = "StableHLO, log_plus_one",
    .hlo = "log-plus-one",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = per_operand({[](VjpContext& c) {
      return div(c.b, c.cotangent(), add(c.b, c.operand(0), full_like(c.b, 1.0, c.operand(0))));
    }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "log1p",
    .stablehlo = "stablehlo.log_plus_one {0} : {type}",
    .reference = map_real([](double x) { return std::log1p(x); }),
    .cost = flops_per_element(12),
    .samples = float_samples(1, -0.5, 2.0, kFunctionUlp),
};

const OpRecord logistic_op{
    .name = "logistic",
    .doc = "1 / (1 + exp(-x)), the sigmoid.",
    .source = "StableHLO, logistic",
    .hlo = "logistic",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = per_operand({[](VjpContext& c) {
      const ValueId rest = sub(c.b, full_like(c.b, 1.0, c.result()), c.result());
      return mul(c.b, mul(c.b, c.cotangent(), c.result()), rest);
    }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "logistic",
    .stablehlo = "stablehlo.logistic {0} : {type}",
    .reference = map_real([](double x) { return 1.0 / (1.0 + std::exp(-x)); }),
    .cost = flops_per_element(12),
    .samples = float_samples(1, -3.0, 3.0, kFunctionUlp),
};

const OpRecord neg_op{
    .name = "neg",
    .doc = "-x; integers wrap around.",
    .source = "StableHLO, negate",
    .hlo = "negate",
    .attributes = AttributeNames{},
    .types = TypeSet::numbers,
    .shape = same_as_operand,
    .vjp = per_operand({[](VjpContext& c) { return neg(c.b, c.cotangent()); }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "neg",
    .stablehlo = "stablehlo.negate {0} : {type}",
    .reference = map1<Numbers>([](auto x) { return wrapping_neg(x); }),
    .cost = flops_per_element(1),
    .samples = number_samples(1),
    .linearity = Linearity::each,
};

const OpRecord not_op{
    .name = "not",
    .doc = "Logical negation of booleans, the complement of integers.",
    .source = "StableHLO, not",
    .hlo = "not",
    .attributes = AttributeNames{},
    .types = TypeSet::bits,
    .shape = same_as_operand,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "not",
    .stablehlo = "stablehlo.not {0} : {type}",
    .reference = map1<Bits>([](auto x) {
      if constexpr (std::is_same_v<decltype(x), bool>) {
        return !x;
      } else {
        return static_cast<decltype(x)>(~x);
      }
    }),
    .cost = no_flops,
    .samples = bit_samples(1),
};

const OpRecord rsqrt_op{
    .name = "rsqrt",
    .doc = "1 / sqrt(x), rounded twice.",
    .source = "StableHLO, rsqrt",
    .hlo = "rsqrt",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = per_operand({[](VjpContext& c) {
      const ValueId factor = full_like(c.b, -0.5, c.result());
      const ValueId slope = mul(c.b, factor, div(c.b, c.result(), c.operand(0)));
      return mul(c.b, c.cotangent(), slope);
    }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "rsqrt",
    .stablehlo = "stablehlo.rsqrt {0} : {type}",
    .reference = map1<Floats>([](auto x) { return decltype(x){1} / std::sqrt(x); }),
    .cost = flops_per_element(2),
    .samples = float_samples(1, 0.5, 3.0),
};

const OpRecord sign_op{
    .name = "sign",
    .doc = "-1, 0 or 1; zeros keep their sign and NaN stays NaN.",
    .source = "StableHLO, sign",
    .hlo = "sign",
    .attributes = AttributeNames{},
    .types = TypeSet::numbers,
    .shape = same_as_operand,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "sign",
    .stablehlo = sign_form,
    .reference = map1<Numbers>([](auto x) {
      using T = decltype(x);
      if (x == T{0} || is_nan(x)) return x;
      return is_negative(x) ? wrapping_neg(T{1}) : T{1};
    }),
    .cost = flops_per_element(1),
    .samples = number_samples(1, 0.5, 2.0),
};

const OpRecord sin_op{
    .name = "sin",
    .doc = "The sine of an angle in radians.",
    .source = "StableHLO, sine",
    .hlo = "sine",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = per_operand(
        {[](VjpContext& c) { return mul(c.b, c.cotangent(), cos(c.b, c.operand(0))); }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "sin",
    .stablehlo = "stablehlo.sine {0} : {type}",
    .reference = map_real([](double x) { return std::sin(x); }),
    .cost = flops_per_element(10),
    .samples = float_samples(1, -3.0, 3.0, kFunctionUlp),
};

const OpRecord sqrt_op{
    .name = "sqrt",
    .doc = "The square root, correctly rounded.",
    .source = "StableHLO, sqrt",
    .hlo = "sqrt",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = per_operand({[](VjpContext& c) {
      return mul(c.b, c.cotangent(), div(c.b, full_like(c.b, 0.5, c.result()), c.result()));
    }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "sqrt",
    .stablehlo = "stablehlo.sqrt {0} : {type}",
    .reference = map1<Floats>([](auto x) { return std::sqrt(x); }),
    .cost = flops_per_element(1),
    .samples = float_samples(1, 0.5, 3.0),
};

const OpRecord stop_gradient_op{
    .name = "stop_gradient",
    .doc = "x itself; no cotangent passes through it.",
    .source = "jax.lax.stop_gradient",
    .hlo = "copy",
    .attributes = AttributeNames{},
    .types = TypeSet::any,
    .shape = same_as_operand,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::view,
    .host = "stop_gradient",
    .stablehlo = stablehlo_operands(),
    .reference = map1<Any>([](auto x) { return x; }),
    .cost = no_flops,
    .samples = number_samples(1),
    .linearity = Linearity::each,
};

const OpRecord tanh_op{
    .name = "tanh",
    .doc = "The hyperbolic tangent.",
    .source = "StableHLO, tanh",
    .hlo = "tanh",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = per_operand({[](VjpContext& c) {
      const ValueId squared = square(c.b, c.result());  // before the constant, on any compiler
      return mul(c.b, c.cotangent(), sub(c.b, full_like(c.b, 1.0, c.result()), squared));
    }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "tanh",
    .stablehlo = "stablehlo.tanh {0} : {type}",
    .reference = map_real([](double x) { return std::tanh(x); }),
    .cost = flops_per_element(12),
    .samples = float_samples(1, -2.0, 2.0, kFunctionUlp),
};

OpFamily elementwise_unary_ops() {
  return {&abs_op,       &cos_op,   &erf_inv_op, &exp_op,      &expm1_op,         &floor_op,
          &is_finite_op, &log1p_op, &log_op,     &logistic_op, &neg_op,           &not_op,
          &rsqrt_op,     &sign_op,  &sin_op,     &sqrt_op,     &stop_gradient_op, &tanh_op};
}

}  // namespace tessera::ops
