// A complete record, one field per line: check_record.sh removes one line at a time.
#include "ops/rules.h"

namespace tessera::ops {

extern const OpRecord twice_op;
// clang-format off
const OpRecord twice_op{
    .name = "twice",
    .doc = "x + x",
    .source = "a test",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_operand,
    .vjp = not_differentiable("a test"),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "twice",
    .stablehlo = "stablehlo.add {0}, {0} : {type}",
    .reference = [](const ReferenceContext& c) { return std::vector<HostArray>{*c.operands[0]}; },
    .cost = flops_per_element(1),
    .samples = float_samples(1, -2.0, 2.0),
};
// clang-format on

}  // namespace tessera::ops
