// Runs references on arrays of f16 and bf16: each equation is computed in f32 and rounded.
#include <algorithm>

#include "ops/record.h"
#include "ops/reference/numeric_convert.h"

namespace tessera::ops {

namespace {

bool is_narrow(const Type& type) { return is_half(type.dtype); }

HostArray converted(const HostArray& array, DType to) {
  HostArray result({to, array.type().shape});
  dispatch(array.type().dtype, [&](auto from_zero) {
    using From = decltype(from_zero);
    dispatch(to, [&](auto to_zero) {
      using To = decltype(to_zero);
      const auto out = result.data<To>();
      const auto x = array.data<From>();
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = convert_value<To>(x[i]);
    });
  });
  return result;
}

}  // namespace

std::vector<HostArray> evaluate(const OpRecord& op, const ReferenceContext& context) {
  const auto& operands = context.operands;
  const bool has_narrow_operand = std::any_of(
      operands.begin(), operands.end(), [](const HostArray* x) { return is_narrow(x->type()); });
  // Only bf16 has a dot unit; f16 is multiplied as f32.
  const bool has_unit = std::any_of(operands.begin(), operands.end(), [](const HostArray* x) {
    return x->type().dtype == DType::bf16;
  });
  const bool has_narrow =
      has_narrow_operand || std::any_of(context.results.begin(), context.results.end(), is_narrow);
  const auto evaluated = [&](const std::vector<const HostArray*>& from,
                             const std::vector<Type>& types) {
    return (*op.reference)({.attributes = context.attributes,
                            .operands = from,
                            .results = types,
                            .grains = context.grains,
                            .call = context.call,
                            .dot_unit = has_unit ? context.dot_unit : DotUnit::portable});
  };
  // Conversions round once from any dtype, and equations inside bodies round their own results.
  const bool rounds_itself = op.bodies != nullptr || *op.name == "convert";
  if (!has_narrow || rounds_itself) return evaluated(operands, context.results);
  std::vector<HostArray> wide;
  wide.reserve(operands.size());
  std::vector<const HostArray*> wide_operands;
  for (const HostArray* operand : operands) {
    if (!is_narrow(operand->type())) {
      wide_operands.push_back(operand);
      continue;
    }
    wide_operands.push_back(&wide.emplace_back(converted(*operand, DType::f32)));
  }
  // Narrow results of operands of other dtypes are computed in f64, so that they are rounded only
  // once: f32 cannot hold every integer.
  const DType computed = has_narrow_operand ? DType::f32 : DType::f64;
  std::vector<Type> types = context.results;
  for (Type& type : types) type.dtype = is_narrow(type) ? computed : type.dtype;
  std::vector<HostArray> results = evaluated(wide_operands, types);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (is_narrow(context.results[i])) {
      results[i] = converted(results[i], context.results[i].dtype);
    }
  }
  return results;
}

}  // namespace tessera::ops
