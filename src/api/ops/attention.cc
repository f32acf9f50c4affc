#include <cmath>

#include <tessera/functions.h>

#include "api/operands.h"

namespace tessera {

using detail::as_array;

namespace {

constexpr const char* kName = "attention";

ir::Attributes attributes_of(const AttentionMask& mask, const Array& q) {
  const double depth = q.rank() == 0 ? 1.0 : static_cast<double>(q.dim(-1));
  return {{"after", mask.is_causal ? std::int64_t{0} : mask.after},
          {"before", mask.before},
          {"has_bias", mask.bias.has_value()},
          {"has_lengths", mask.lengths.has_value()},
          {"scale", mask.scale.value_or(1.0 / std::sqrt(depth))}};
}

}  // namespace

Array attention(Operand q, Operand k, Operand v, const AttentionMask& mask) {
  const std::vector<Array> results = detail::public_ops(q.where, [&] {
    const DType dtype = detail::common_dtype(kName, {q, k, v});
    std::vector<Array> operands = {as_array(kName, q, dtype), as_array(kName, k, dtype),
                                   as_array(kName, v, dtype)};
    if (mask.bias) operands.push_back(*mask.bias);
    if (mask.lengths) operands.push_back(*mask.lengths);
    return detail::emit_all(kName, operands, attributes_of(mask, operands[0]));
  });
  return results[0];
}

}  // namespace tessera
