// The error function, powers and logarithms of two, cube roots.
#include <cmath>

#include "ops/functions/real_function.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

constexpr double kLn2 = 0.69314718055994530942;

/// factor * exp(-x^2)
ValueId bell(VjpContext& c, double factor) {
  const ValueId x = c.operand(0);
  const ValueId height = full_like(c.b, factor, x);
  return mul(c.b, height, exp(c.b, neg(c.b, square(c.b, x))));
}

/// More accurate than exp(x log 2).
hlo::Values exp2_form(hlo::FormContext& c) {
  return {c.w.binary("power", c.w.constant(2, c.x().type), c.x())};
}

hlo::Values log2_form(hlo::FormContext& c) {
  const hlo::Value log = c.w.unary("log", c.x());
  return {c.w.binary("divide", log, c.w.constant(kLn2, c.x().type))};
}

constexpr double kTwoOverRootPi = 1.12837916709551257390;

}  // namespace

const OpRecord cbrt_op = record_of({
    .name = "cbrt",
    .doc = "The cube root, also of negative numbers.",
    .source = "StableHLO, cbrt",
    .stablehlo = "stablehlo.cbrt {0} : {type}",
    .slope =
        [](VjpContext& c) {
          const ValueId x = c.operand(0);
          return div(c.b, c.result(), mul(c.b, full_like(c.b, 3.0, x), x));
        },
    .value = std::cbrt,
    .low = 0.5,
    .high = 3.0,
    .hlo = "cbrt",
});

const OpRecord erf_op = record_of({
    .name = "erf",
    .doc = "The error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.",
    .source = "CHLO, erf",
    .stablehlo = "chlo.erf {0} : {type} -> {type}",
    .slope = [](VjpContext& c) { return bell(c, kTwoOverRootPi); },
    .value = std::erf,
    .low = -3.0,
    .high = 3.0,
    .hlo = "erf",
});

const OpRecord erfc_op = record_of({
    .name = "erfc",
    .doc = "1 - erf(x), accurate where the result is small.",
    .source = "CHLO, erfc",
    .stablehlo = "chlo.erfc {0} : {type} -> {type}",
    .slope = [](VjpContext& c) { return bell(c, -kTwoOverRootPi); },
    .value = std::erfc,
    .low = -3.0,
    .high = 3.0,
});

const OpRecord exp2_op = record_of({
    .name = "exp2",
    .doc = "2 to the power x.",
    .source = "jax.lax.exp2",
    .stablehlo = exp2_form,
    .slope = [](VjpContext& c) { return mul(c.b, full_like(c.b, kLn2, c.result()), c.result()); },
    .value = std::exp2,
    .low = -3.0,
    .high = 3.0,
});

const OpRecord log2_op = record_of({
    .name = "log2",
    .doc = "The logarithm to base 2.",
    .source = "jax.numpy.log2",
    .stablehlo = log2_form,
    .slope =
        [](VjpContext& c) {
          return div(c.b, full_like(c.b, 1.0 / kLn2, c.operand(0)), c.operand(0));
        },
    .value = std::log2,
    .low = 0.5,
    .high = 3.0,
});

OpFamily special_ops() { return {&cbrt_op, &erf_op, &erfc_op, &exp2_op, &log2_op}; }

}  // namespace tessera::ops
