// Values for which devices have terms (`unreduced`) of a sum, a maximum or a minimum.
//
// In the program, such a value is the reduction of its terms. In addition, the frame notes an array
// with a leading dimension for each of the axes, so that operations that need the terms get those
// that the devices have.
#include <algorithm>
#include <array>
#include <numeric>

#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

ValueId reduced(ir::Builder& b, ValueId x, Ints dims, const Unreduced& of) {
  std::string_view name = of.reduction;
  if (b.type(x).dtype == DType::boolean && name == "reduce_max") name = "reduce_or";
  if (b.type(x).dtype == DType::boolean && name == "reduce_min") name = "reduce_and";
  return b.emit(name, {{"dims", std::move(dims)}}, {x});
}

}  // namespace

Unreduced unreduced_of(const ModuleContext& context, const Attribute& sharding,
                       const Operation& op) {
  if (sharding.kind != Attribute::Kind::sharding) return {};
  const auto first = static_cast<std::ptrdiff_t>(1 + sharding.numbers[0] + sharding.numbers[1]);
  const std::vector<const Attribute*> named(sharding.items.begin() + first,
                                            sharding.items.begin() + first + sharding.numbers[2]);
  constexpr std::array<std::string_view, 3> kReductions = {"reduce_sum", "reduce_max",
                                                           "reduce_min"};
  const auto reduction = static_cast<std::size_t>(sharding.numbers[3]);
  if (reduction >= kReductions.size()) {
    fail_unsupported(context, op,
                     "unreduced axes with a reduction other than sum, maximum and minimum");
  }
  Unreduced result{.axes = {}, .reduction = kReductions.at(reduction)};
  for (const MeshAxis& axis : context.mesh.axes()) {
    const auto is_it = [&](const Attribute* name) {
      return name->kind == Attribute::Kind::axis && name->items.empty() && name->text == axis.name;
    };
    if (std::ranges::any_of(named, is_it)) result.axes.push_back(axis);
  }
  if (result.axes.size() != named.size()) {
    fail_unsupported(context, op,
                     "an unreduced axis of another mesh, or an unreduced part of an axis");
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

ValueId value_of_terms(Frame& frame, ValueId array, const Unreduced& of) {
  if (of.axes.empty()) return array;
  Ints dims(of.axes.size());
  std::iota(dims.begin(), dims.end(), 0);
  const ValueId value = reduced(frame.builder(), array, std::move(dims), of);
  frame.terms[value] = {.array = array, .of = of};
  return value;
}

ValueId terms_of(Frame& frame, ValueId value, const Unreduced& of) {
  if (of.axes.empty()) return value;
  ir::Builder& b = frame.builder();
  const auto found = frame.terms.find(value);
  const bool is_known = found != frame.terms.end() && found->second.of.reduction == of.reduction;
  const Terms terms = is_known ? found->second : Terms{.array = value, .of = {}};
  if (terms.of.axes == of.axes) return terms.array;
  const auto is_among = [](const std::vector<MeshAxis>& list, const MeshAxis& axis) {
    return std::ranges::find(list, axis) != list.end();
  };
  Ints others;
  std::vector<MeshAxis> kept;
  for (std::size_t i = 0; i < terms.of.axes.size(); ++i) {
    if (is_among(of.axes, terms.of.axes[i])) {
      kept.push_back(terms.of.axes[i]);
    } else {
      others.push_back(static_cast<std::int64_t>(i));
    }
  }
  ValueId array = terms.array;
  if (!others.empty()) array = reduced(b, array, std::move(others), of);
  const Type whole = with_terms(b.type(value), of.axes);
  Shape shape = whole.shape;
  Ints high(shape.size(), 0);
  for (std::size_t i = 0; i < of.axes.size(); ++i) {
    if (is_among(kept, of.axes[i])) continue;
    shape[i] = 1;
    high[i] = of.axes[i].size - 1;
  }
  array = ops::reshape(b, array, std::move(shape));
  // Along the other axes, every device has the extremum. For a sum, the first device has the whole
  // sum, and the others have zeros.
  if (of.reduction != "reduce_sum") {
    Ints dims(whole.shape.size());
    std::iota(dims.begin(), dims.end(), 0);
    return ops::broadcast_in_dim(b, array, std::move(dims), whole.shape);
  }
  return ops::pad(b, array, ops::scalar(b, 0, whole.dtype), Ints(high.size(), 0), high);
}

}  // namespace tessera::stablehlo
