// Rounding to integers, and counts of bits.
#include <bit>
#include <cmath>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"

namespace tessera::ops {

const OpRecord ceil_op{
    .name = "ceil",
    .doc = "The smallest integer not less than x.",
    .source = "StableHLO, ceil",
    .hlo = "ceil",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "ceil",
    .stablehlo = "stablehlo.ceil {0} : {type}",
    .reference = map1<Floats>([](auto x) { return std::ceil(x); }),
    .cost = flops_per_element(1),
    .samples = float_samples(1, -3.0, 3.0),
};

const OpRecord count_leading_zeros_op{
    .name = "count_leading_zeros",
    .doc = "The number of leading zero bits; all of them for 0.",
    .source = "StableHLO, count_leading_zeros",
    .hlo = "count-leading-zeros",
    .attributes = AttributeNames{},
    .types = TypeSet::integers,
    .shape = same_as_operand,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "count_leading_zeros",
    .stablehlo = "stablehlo.count_leading_zeros {0} : {type}",
    .reference = map1<Integers>([](auto x) {
      return static_cast<decltype(x)>(
          std::countl_zero(static_cast<std::make_unsigned_t<decltype(x)>>(x)));
    }),
    .cost = no_flops,
    .samples = integer_samples(1),
};

const OpRecord population_count_op{
    .name = "population_count",
    .doc = "The number of bits that are 1.",
    .source = "StableHLO, popcnt",
    .hlo = "popcnt",
    .attributes = AttributeNames{},
    .types = TypeSet::integers,
    .shape = same_as_operand,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "population_count",
    .stablehlo = "stablehlo.popcnt {0} : {type}",
    .reference = map1<Integers>([](auto x) {
      return static_cast<decltype(x)>(
          std::popcount(static_cast<std::make_unsigned_t<decltype(x)>>(x)));
    }),
    .cost = no_flops,
    .samples = integer_samples(1),
};

const OpRecord round_op{
    .name = "round",
    .doc = "The nearest integer, ties to even.",
    .source = "StableHLO, round_nearest_even",
    .hlo = "round-nearest-even",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "round",
    .stablehlo = "stablehlo.round_nearest_even {0} : {type}",
    .reference = map1<Floats>([](auto x) { return std::nearbyint(x); }),
    .cost = flops_per_element(1),
    .samples = float_samples(1, -3.0, 3.0),
};

OpFamily rounding_ops() {
  return {&ceil_op, &count_leading_zeros_op, &population_count_op, &round_op};
}

}  // namespace tessera::ops
