// A function of the tiles of one device becomes a function of whole arrays.
#include <algorithm>

#include "batch/batch.h"
#include "mesh/sharding.h"
#include "ops/emit.h"

namespace tessera::batch {

using ir::Builder;
using ir::Ints;
using ir::ValueId;

bool names_axis(const TileSpec& spec, const std::string& axis) {
  return std::any_of(spec.begin(), spec.end(), [&](const auto& dim) {
    return std::find(dim.begin(), dim.end(), axis) != dim.end();
  });
}

/// A sharding constraint that splits dimensions over the mapped axes `dims`. Dimensions from
/// `first_open` on may be split over the other axes as well.
ValueId TileMap::placed(Builder& b, ValueId x, TileSpec dims, std::size_t first_open) const {
  std::vector<SpecEntry> entries;
  for (std::vector<std::string>& axes : dims) {
    SpecEntry entry(none);
    entry.axes = std::move(axes);
    entries.push_back(std::move(entry));
  }
  const PartitionSpec spec(std::move(entries));
  Sharding sharding = to_sharding(mesh_, spec, b.type(x), "shard_map", where_);
  // The dimensions of a tile may be split over axes that are not mapped.
  for (std::size_t dim = first_open; dim < sharding.dims.size(); ++dim) {
    if (axes_.size() < mesh_.axes().size()) sharding.open.push_back(dim);
  }
  return ops::sharding_constraint(b, x, std::move(sharding));
}

ValueId TileMap::stack(Builder& b, ValueId x, const TileSpec& spec) const {
  const Shape whole = b.type(x).shape;
  Ints sizes;
  Ints local_dims;
  std::vector<std::pair<std::string, std::int64_t>> axis_dims;
  for (std::size_t dim = 0; dim < spec.size(); ++dim) {
    std::int64_t left = whole[dim];
    for (const std::string& axis : spec[dim]) {
      axis_dims.emplace_back(axis, static_cast<std::int64_t>(sizes.size()));
      sizes.push_back(mesh_.axis_size(axis));
      left /= sizes.back();
    }
    local_dims.push_back(static_cast<std::int64_t>(sizes.size()));
    sizes.push_back(left);
  }
  Ints permutation;
  TileSpec dims;
  for (const MeshAxis& axis : axes_) {
    for (const auto& [name, dim] : axis_dims) {
      if (name != axis.name) continue;
      permutation.push_back(dim);
      dims.push_back({name});
    }
  }
  permutation.insert(permutation.end(), local_dims.begin(), local_dims.end());
  const std::size_t num_leading = dims.size();
  dims.resize(permutation.size());
  const ValueId split = ops::reshape(b, x, sizes);
  return placed(b, ops::transpose(b, split, std::move(permutation)), std::move(dims), num_leading);
}

/// Adds or removes the leading dimension of `axis`, so that `x` has it exactly if the spec names
/// the axis (`is_named`). `varies`: whether `x` has it now. `at`: its position.
ValueId TileMap::with_axis(Builder& b, ValueId x, std::size_t at, bool varies, bool is_named,
                           const MeshAxis& axis) const {
  if (varies == is_named) return x;
  const auto dim = static_cast<std::int64_t>(at);
  Shape shape = b.type(x).shape;
  if (is_named) {
    shape.insert(shape.begin() + dim, axis.size);
    return ops::expand_dims(b, x, {dim}, shape);
  }
  shape.erase(shape.begin() + dim);
  return ops::reshape(b, ops::slice_dim(b, x, dim, 0, 1), std::move(shape));
}

ValueId TileMap::unstack(Builder& b, ValueId x, const std::vector<bool>& varies,
                         const TileSpec& spec) const {
  std::vector<std::string> leading;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const bool is_named = names_axis(spec, axes_[i].name);
    x = with_axis(b, x, leading.size(), varies[i], is_named, axes_[i]);
    if (is_named) leading.push_back(axes_[i].name);
  }
  const Shape stacked = b.type(x).shape;
  Ints permutation;
  Shape shape;
  for (std::size_t dim = 0; dim < spec.size(); ++dim) {
    const auto local = static_cast<std::int64_t>(leading.size() + dim);
    std::int64_t size = stacked[static_cast<std::size_t>(local)];
    for (const std::string& axis : spec[dim]) {
      permutation.push_back(std::find(leading.begin(), leading.end(), axis) - leading.begin());
      size *= mesh_.axis_size(axis);
    }
    permutation.push_back(local);
    shape.push_back(size);
  }
  const ValueId whole = ops::reshape(b, ops::transpose(b, x, std::move(permutation)), shape);
  return placed(b, whole, spec, 0);
}

ops::BatchAxis TileMap::batch_axis(const MeshAxis& axis) const {
  const Type along{.dtype = DType::f32, .shape = {axis.size}};
  const Sharding split = to_sharding(mesh_, PartitionSpec{axis.name}, along, "shard_map", where_);
  return {
      .name = axis.name, .atoms = split.dims[0], .is_manual = axes_.size() == mesh_.axes().size()};
}

OverDevices TileMap::over_devices(ir::Function function, const std::vector<TileSpec>& specs) const {
  OverDevices all{.function = std::move(function), .varies = {}};
  all.varies.assign(all.function.outputs.size(), std::vector<bool>(axes_.size()));
  for (std::size_t axis = axes_.size(); axis-- > 0;) {
    std::vector<bool> inputs(all.function.inputs.size(), false);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      inputs[i] = names_axis(specs[i], axes_[axis].name);
    }
    Batched batched = batch(all.function, inputs, axes_[axis].size, {}, batch_axis(axes_[axis]));
    all.function = std::move(batched.function);
    for (std::size_t i = 0; i < all.varies.size(); ++i) {
      all.varies[i][axis] = batched.is_output_batched[i];
    }
  }
  return all;
}

}  // namespace tessera::batch
