// Recipes of ops that move slices: permutations, and collectives over a mapped axis.
#include <algorithm>

#include "ops/axis/axis.h"
#include "tests/fuzz/program.h"

namespace tessera::fuzz {

namespace {

Ints any_permutation(Program& p, std::int64_t size) {
  Ints numbers;
  for (std::int64_t i = 0; i < size; ++i) numbers.push_back(i);
  if (p.random().chance(50)) {
    p.random().shuffle(numbers);
  } else if (size > 1) {
    // A rotation, as in a ring.
    std::rotate(numbers.begin(), numbers.begin() + p.random().between(1, size - 1), numbers.end());
  }
  return numbers;
}

void permute(Program& p) {
  const ValueId x = p.any(1);
  const std::int64_t dim = any_dim(p, x);
  const Ints sources = any_permutation(p, p.shape(x)[static_cast<std::size_t>(dim)]);
  p.emit("permute", {{"dim", dim}, {"sources", sources}}, {x});
}

/// The mapped axis, or an axis of size 1 that only this op has.
ir::Attributes axis_of(Program& p) {
  const ops::NamedAxis axis = p.axis().value_or(ops::NamedAxis{.name = "alone", .size = 1});
  return {{"axis", axis.name}, {"size", axis.size}};
}

void axis_index(Program& p) { p.emit("axis_index", axis_of(p), {}); }

void axis_gather(Program& p) { p.emit("axis_gather", axis_of(p), {p.any()}); }

void axis_permute(Program& p) {
  ir::Attributes attributes = axis_of(p);
  attributes.set("sources", any_permutation(p, attributes.integer("size")));
  p.emit("axis_permute", std::move(attributes), {p.any()});
}

/// Needs a dimension with one slice per element of the axis: takes a value that has one, or
/// broadcasts.
void axis_all_to_all(Program& p) {
  ir::Attributes attributes = axis_of(p);
  attributes.set("is_pinned", true);
  const std::int64_t size = attributes.integer("size");
  ValueId x = p.recent([&](const Type& type) { return type.rank() > 0 && type.shape[0] == size; });
  if (x == ir::kNoValue) {
    const ValueId slice = p.any();
    Shape shape = p.shape(slice);
    Ints dims;
    for (std::size_t i = 1; i <= shape.size(); ++i) dims.push_back(static_cast<std::int64_t>(i));
    shape.insert(shape.begin(), size);
    x = p.emit_anyway("broadcast_in_dim", {{"dims", dims}, {"shape", shape}}, {slice}).at(0);
  }
  p.emit("axis_all_to_all", std::move(attributes), {x});
}

}  // namespace

Recipes axis_recipes() {
  return {{"axis_all_to_all", {2, axis_all_to_all}},
          {"axis_gather", {2, axis_gather}},
          {"axis_index", {2, axis_index}},
          {"axis_permute", {2, axis_permute}},
          {"permute", {5, permute}}};
}

}  // namespace tessera::fuzz
