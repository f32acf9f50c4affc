#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>
#include <tessera/mesh.h>

#include "mesh/sharding.h"

namespace tessera {

namespace {

Layout layout_of(const NamedSharding& sharding, const Shape& shape, const char* subject,
                 const Span& where) {
  return Layout(sharding.mesh, to_sharding(sharding.mesh, sharding.spec, shape, subject, where),
                shape);
}

}  // namespace

std::string to_string(const std::vector<IndexRange>& index) {
  std::string text = "[";
  for (const IndexRange& range : index) {
    text += fmt::format("{}{}:{}", text.size() > 1 ? ", " : "", range.start, range.limit);
  }
  return text + "]";
}

std::vector<IndexRange> ranges_of(const Box& box) {
  std::vector<IndexRange> ranges;
  for (std::size_t dim = 0; dim < box.start.size(); ++dim) {
    ranges.push_back({box.start[dim], box.start[dim] + box.size[dim]});
  }
  return ranges;
}

NamedSharding::NamedSharding(Mesh on, PartitionSpec entries, std::source_location where)
    : mesh(std::move(on)), spec(std::move(entries)) {
  check_spec(mesh, spec, "NamedSharding", Span(where));
}

std::string to_string(const NamedSharding& sharding) {
  std::string axes;
  for (const MeshAxis& axis : sharding.mesh.axes()) {
    axes += fmt::format("{}'{}': {}", axes.empty() ? "" : ", ", axis.name, axis.size);
  }
  if (!sharding.mesh.is_in_order()) {
    axes += fmt::format(", devices=[{}]", fmt::join(sharding.mesh.device_ids(), ", "));
  }
  const std::string groups =
      sharding.mpmd_idxs.empty()
          ? ""
          : fmt::format(", mpmd_idxs=[{}]", fmt::join(sharding.mpmd_idxs, ", "));
  return fmt::format("NamedSharding(mesh=Mesh({}), spec={}{})", axes, to_string(sharding.spec),
                     groups);
}

bool NamedSharding::is_fully_replicated() const {
  for (const SpecEntry& entry : spec.entries()) {
    for (const std::string& axis : entry.axes) {
      if (mesh.axis_size(axis) > 1) return false;
    }
  }
  return true;
}

Shape NamedSharding::shard_shape(const Shape& shape, std::source_location where) const {
  return layout_of(*this, shape, "shard_shape", where).max_tile_shape();
}

Shape NamedSharding::shard_shape(const Shape& shape, std::int64_t device,
                                 std::source_location where) const {
  const Layout layout = layout_of(*this, shape, "shard_shape", where);
  mesh.position_of(device, where);  // throws
  return layout.box(layout.tile_at(device_digits(mesh, device))).size;
}

std::vector<DeviceIndices> NamedSharding::devices_indices_map(const Shape& shape,
                                                              std::source_location where) const {
  const Layout layout = layout_of(*this, shape, "devices_indices_map", where);
  const std::vector<Atom> atoms = atoms_of(mesh);
  std::vector<DeviceIndices> map;
  for (const std::int64_t device : mesh.device_ids()) {
    const auto position = static_cast<std::int64_t>(map.size());
    const std::int64_t tile = layout.tile_at(position_digits(atoms, position));
    map.push_back({.device = device, .index = ranges_of(layout.box(tile))});
  }
  return map;
}

bool NamedSharding::is_equivalent_to(const NamedSharding& other, std::int64_t rank,
                                     std::source_location where) const {
  for (const PartitionSpec* one : {&spec, &other.spec}) {
    const auto entries = static_cast<std::int64_t>(one->entries().size());
    if (entries <= rank) continue;
    throw UserError({.what = "is_equivalent_to: the spec has more entries than the rank allows",
                     .where = where,
                     .found = fmt::format("{} at rank {}", to_string(*one), rank),
                     .wanted = fmt::format("a rank of {} or more", entries),
                     .cure = "give the rank of the arrays that are compared"});
  }
  if (num_devices() != other.num_devices()) return false;
  // One element per device and dimension, so that all shards are distinct and none is empty.
  const Shape shape(static_cast<std::size_t>(std::max<std::int64_t>(rank, 0)), num_devices());
  const char* subject = "is_equivalent_to";
  const Layout mine = layout_of(*this, shape, subject, where);
  const Layout theirs = layout_of(other, shape, subject, where);
  if (mine.max_tile_shape() != theirs.max_tile_shape()) return false;
  for (std::int64_t device = 0; device < num_devices(); ++device) {
    if (mine.box(mine.tile_at(device_digits(mesh, device))) !=
        theirs.box(theirs.tile_at(device_digits(other.mesh, device)))) {
      return false;
    }
  }
  return true;
}

}  // namespace tessera
