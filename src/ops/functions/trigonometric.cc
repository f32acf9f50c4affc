// Trigonometric and hyperbolic functions and their inverses, beyond sin, cos and tanh.
#include <cmath>

#include "ops/functions/real_function.h"
#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

/// constant + factor * x * x
ValueId square_plus(VjpContext& c, double factor, ValueId x, double constant) {
  const ValueId factors = full_like(c.b, factor, x);
  const ValueId squared = mul(c.b, factors, square(c.b, x));
  return add(c.b, squared, full_like(c.b, constant, x));
}

ValueId reciprocal(VjpContext& c, ValueId x) { return div(c.b, full_like(c.b, 1.0, x), x); }

/// cotangent * numerator / (y^2 + x^2), for the derivatives of atan2(y, x).
ValueId over_square_sum(VjpContext& c, ValueId numerator) {
  const ValueId y_squared = square(c.b, c.operand(0));
  const ValueId sum = add(c.b, y_squared, square(c.b, c.operand(1)));
  return mul(c.b, c.cotangent(), div(c.b, numerator, sum));
}

}  // namespace

const OpRecord acos_op = record_of({
    .name = "acos",
    .doc = "The angle in [0, pi] whose cosine is x; NaN outside [-1, 1].",
    .source = "CHLO, acos",
    .stablehlo = "chlo.acos {0} : {type} -> {type}",
    .slope =
        [](VjpContext& c) { return neg(c.b, rsqrt(c.b, square_plus(c, -1.0, c.operand(0), 1.0))); },
    .value = std::acos,
    .low = -0.9,
    .high = 0.9,
});

const OpRecord acosh_op = record_of({
    .name = "acosh",
    .doc = "The inverse of cosh; NaN below 1.",
    .source = "CHLO, acosh",
    .stablehlo = "chlo.acosh {0} : {type} -> {type}",
    .slope = [](VjpContext& c) { return rsqrt(c.b, square_plus(c, 1.0, c.operand(0), -1.0)); },
    .value = std::acosh,
    .low = 1.5,
    .high = 4.0,
});

const OpRecord asin_op = record_of({
    .name = "asin",
    .doc = "The angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1].",
    .source = "CHLO, asin",
    .stablehlo = "chlo.asin {0} : {type} -> {type}",
    .slope = [](VjpContext& c) { return rsqrt(c.b, square_plus(c, -1.0, c.operand(0), 1.0)); },
    .value = std::asin,
    .low = -0.9,
    .high = 0.9,
});

const OpRecord asinh_op = record_of({
    .name = "asinh",
    .doc = "The inverse of sinh.",
    .source = "CHLO, asinh",
    .stablehlo = "chlo.asinh {0} : {type} -> {type}",
    .slope = [](VjpContext& c) { return rsqrt(c.b, square_plus(c, 1.0, c.operand(0), 1.0)); },
    .value = std::asinh,
    .low = -3.0,
    .high = 3.0,
});

const OpRecord atan_op = record_of({
    .name = "atan",
    .doc = "The angle in [-pi/2, pi/2] whose tangent is x.",
    .source = "CHLO, atan",
    .stablehlo = "chlo.atan {0} : {type} -> {type}",
    .slope = [](VjpContext& c) { return reciprocal(c, square_plus(c, 1.0, c.operand(0), 1.0)); },
    .value = std::atan,
    .low = -3.0,
    .high = 3.0,
});

const OpRecord atan2_op{
    .name = "atan2",
    .doc =
        "The angle in [-pi, pi] of the point (x, y); y is the first operand. Zeros keep their "
        "signs.",
    .source = "StableHLO, atan2",
    .hlo = "atan2",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_both,
    .vjp = per_operand({[](VjpContext& c) { return over_square_sum(c, c.operand(1)); },
                        [](VjpContext& c) { return neg(c.b, over_square_sum(c, c.operand(0))); }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "atan2",
    .stablehlo = "stablehlo.atan2 {0}, {1} : {type}",
    .reference = map2<Floats>([](auto y, auto x) {
      return static_cast<decltype(x)>(std::atan2(static_cast<double>(y), static_cast<double>(x)));
    }),
    .cost = flops_per_element(20),
    .samples = float_samples(2, 0.5, 3.0, kFunctionUlp),
};

const OpRecord atanh_op = record_of({
    .name = "atanh",
    .doc = "The inverse of tanh; NaN outside [-1, 1].",
    .source = "CHLO, atanh",
    .stablehlo = "chlo.atanh {0} : {type} -> {type}",
    .slope = [](VjpContext& c) { return reciprocal(c, square_plus(c, -1.0, c.operand(0), 1.0)); },
    .value = std::atanh,
    .low = -0.9,
    .high = 0.9,
});

const OpRecord cosh_op = record_of({
    .name = "cosh",
    .doc = "The hyperbolic cosine.",
    .source = "CHLO, cosh",
    .stablehlo = "chlo.cosh {0} : {type} -> {type}",
    .slope = [](VjpContext& c) { return sinh(c.b, c.operand(0)); },
    .value = std::cosh,
    .low = -3.0,
    .high = 3.0,
});

const OpRecord sinh_op = record_of({
    .name = "sinh",
    .doc = "The hyperbolic sine.",
    .source = "CHLO, sinh",
    .stablehlo = "chlo.sinh {0} : {type} -> {type}",
    .slope = [](VjpContext& c) { return cosh(c.b, c.operand(0)); },
    .value = std::sinh,
    .low = -3.0,
    .high = 3.0,
});

const OpRecord tan_op = record_of({
    .name = "tan",
    .doc = "The tangent of an angle in radians.",
    .source = "StableHLO, tan",
    .stablehlo = "stablehlo.tan {0} : {type}",
    .slope = [](VjpContext& c) { return square_plus(c, 1.0, c.result(), 1.0); },
    .value = std::tan,
    .low = -1.2,
    .high = 1.2,
    .hlo = "tan",
});

OpFamily trigonometric_ops() {
  return {&acos_op, &acosh_op, &asin_op, &asinh_op, &atan2_op,
          &atan_op, &atanh_op, &cosh_op, &sinh_op,  &tan_op};
}

}  // namespace tessera::ops
