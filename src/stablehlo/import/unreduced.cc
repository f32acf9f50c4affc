// Values of which devices have terms of a sum (`unreduced`).
//
// In the program such a value is its sum. Beside it the frame remembers an array with a dimension
// in front for each of the axes, so that what asks for the terms gets those that the devices have.
#include <algorithm>
#include <numeric>

#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

std::vector<MeshAxis> unreduced_axes(const ModuleContext& context, const Attribute& sharding,
                                     const Operation& op) {
  if (sharding.kind != Attribute::Kind::sharding) return {};
  const auto first = static_cast<std::ptrdiff_t>(1 + sharding.numbers[0] + sharding.numbers[1]);
  const std::vector<const Attribute*> named(sharding.items.begin() + first,
                                            sharding.items.begin() + first + sharding.numbers[2]);
  std::vector<MeshAxis> result;
  for (const MeshAxis& axis : context.mesh.axes()) {
    const auto is_it = [&](const Attribute* name) {
      return name->kind == Attribute::Kind::axis && name->items.empty() && name->text == axis.name;
    };
    if (std::ranges::any_of(named, is_it)) result.push_back(axis);
  }
  if (result.size() != named.size()) {
    fail_unsupported(context, op, "an unreduced axis of another mesh, or a part of an axis");
  }
  return result;
}

Type with_terms(Type type, const std::vector<MeshAxis>& axes) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    type.shape.insert(type.shape.begin() + static_cast<std::ptrdiff_t>(i), axes[i].size);
  }
  return type;
}

Sharding with_terms(const ModuleContext& context, Sharding sharding,
                    const std::vector<MeshAxis>& axes, const Type& type, const Operation& op) {
  std::vector<SpecEntry> entries;
  for (const MeshAxis& axis : axes) entries.emplace_back(axis.name);
  const Sharding front = to_sharding(context.mesh, PartitionSpec(std::move(entries)), type,
                                     "stablehlo", bytecode::line_of(op.location));
  for (std::size_t i = 0; i < axes.size(); ++i) {
    sharding.dims.insert(sharding.dims.begin() + static_cast<std::ptrdiff_t>(i), front.dims[i]);
  }
  for (std::size_t& dim : sharding.open) dim += axes.size();
  return sharding;
}

ValueId sum_of_terms(Frame& frame, ValueId array, const std::vector<MeshAxis>& axes) {
  if (axes.empty()) return array;
  Ints dims(axes.size());
  std::iota(dims.begin(), dims.end(), 0);
  const ValueId sum = ops::reduce_sum(frame.builder(), array, std::move(dims));
  frame.terms[sum] = {.array = array, .axes = axes};
  return sum;
}

ValueId terms_of(Frame& frame, ValueId value, const std::vector<MeshAxis>& axes) {
  if (axes.empty()) return value;
  ir::Builder& b = frame.builder();
  const auto found = frame.terms.find(value);
  Terms terms = found == frame.terms.end() ? Terms{.array = value, .axes = {}} : found->second;
  if (terms.axes == axes) return terms.array;
  const auto is_among = [](const std::vector<MeshAxis>& list, const MeshAxis& axis) {
    return std::ranges::find(list, axis) != list.end();
  };
  Ints summed;
  std::vector<MeshAxis> kept;
  for (std::size_t i = 0; i < terms.axes.size(); ++i) {
    if (is_among(axes, terms.axes[i])) {
      kept.push_back(terms.axes[i]);
    } else {
      summed.push_back(static_cast<std::int64_t>(i));
    }
  }
  const ValueId array = ops::reduce_sum(b, terms.array, std::move(summed));
  // Along the other axes the first device has all of it, and the others have zeros.
  const Type whole = with_terms(b.type(value), axes);
  Shape shape = whole.shape;
  Ints high(shape.size(), 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (is_among(kept, axes[i])) continue;
    shape[i] = 1;
    high[i] = axes[i].size - 1;
  }
  return ops::pad(b, ops::reshape(b, array, std::move(shape)), ops::scalar(b, 0, whole.dtype),
                  Ints(high.size(), 0), high);
}

}  // namespace tessera::stablehlo
