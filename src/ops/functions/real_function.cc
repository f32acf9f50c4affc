#include "ops/functions/real_function.h"

#include "ops/reference/loops.h"
#include "ops/rules.h"

namespace tessera::ops {

OpRecord record_of(RealFunction function) {
  return OpRecord{
      .name = function.name,
      .doc = function.doc,
      .source = function.source,
      .hlo = function.hlo,
      .attributes = AttributeNames{},
      .types = TypeSet::floats,
      .shape = same_as_operand,
      .vjp = per_operand(
          {[slope = function.slope](VjpContext& c) { return mul(c.b, c.cotangent(), slope(c)); }}),
      .batch = elementwise_batch,
      .factors = elementwise_factors,
      .pattern = Pattern::elementwise,
      .host = function.name,
      .stablehlo = function.stablehlo,
      .reference = map_real(function.value),
      .cost = flops_per_element(15),
      .samples = float_samples(1, function.low, function.high, kFunctionUlp),
  };
}

}  // namespace tessera::ops
