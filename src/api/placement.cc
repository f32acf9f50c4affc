// Interned placements, and moving tiles between layouts by copying boxes.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <unordered_map>

#include <tessera/error.h>

#include "api/array_node.h"
#include "run/transport/processes.h"

namespace tessera::detail {

namespace {

/// Interned values, by their text. Their addresses stay valid.
template <typename T>
class Interned {
 public:
  template <typename Make>
  const T* find(const std::string& key, Make make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto [place, is_new] = items_.try_emplace(key);
    if (is_new) place->second = std::make_unique<const T>(make());
    return place->second.get();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<const T>> items_;
};

/// Copies the elements of `box` between two arrays that hold the boxes `from_box` and `to_box`.
void copy_box(const Box& box, std::size_t element, const Box& from_box, const std::byte* from,
              const Box& to_box, std::byte* to) {
  const std::size_t rank = box.start.size();
  for (std::int64_t size : box.size) {
    if (size <= 0) return;
  }
  if (rank == 0) {
    std::memcpy(to, from, element);
    return;
  }
  const auto from_strides = row_major_strides(from_box.size);
  const auto to_strides = row_major_strides(to_box.size);
  const std::size_t run_bytes = static_cast<std::size_t>(box.size.back()) * element;
  std::vector<std::int64_t> index(box.start);
  while (true) {
    std::int64_t from_offset = 0;
    std::int64_t to_offset = 0;
    for (std::size_t dim = 0; dim < rank; ++dim) {
      from_offset += (index[dim] - from_box.start[dim]) * from_strides[dim];
      to_offset += (index[dim] - to_box.start[dim]) * to_strides[dim];
    }
    std::memcpy(to + static_cast<std::size_t>(to_offset) * element,
                from + static_cast<std::size_t>(from_offset) * element, run_bytes);
    std::size_t dim = rank - 1;
    while (dim > 0) {
      --dim;
      if (++index[dim] < box.start[dim] + box.size[dim]) break;
      index[dim] = box.start[dim];
      if (dim == 0) return;
    }
    if (rank == 1) return;
  }
}

Box whole(const Shape& shape) {
  return {.start = std::vector<std::int64_t>(shape.size(), 0), .size = shape};
}

std::int64_t box_bytes(const Box& box, DType dtype) {
  return num_elements(box.size) * static_cast<std::int64_t>(size_bytes(dtype));
}

}  // namespace

const ParamInfo* intern(ParamInfo info) {
  static auto* table = new Interned<ParamInfo>;
  std::string key = info.path + '\n';
  if (info.is_annotated) key += to_string(info.spec);
  if (info.names == AxisNames::logical) key += " of logical names";
  return table->find(key, [&] { return std::move(info); });
}

namespace {

void check_number_of_devices(const Mesh& mesh) {
  const run::Transport* transport = run::transport();
  if (transport == nullptr || mesh.axes().empty()) return;
  const std::int64_t devices = mesh.num_devices();
  if (devices == transport->size() || devices == run::devices_per_group()) return;
  const bool has_groups = run::devices_per_group() != transport->size();
  const std::string in_groups =
      has_groups ? " in groups of " + std::to_string(run::devices_per_group()) : "";
  throw UserError(
      {.what = "the number of devices of the mesh differs from the number of processes of this run",
       .where = trace::call_span(std::source_location()),
       .found = to_string(mesh) + " with " + std::to_string(devices) + " devices and " +
                std::to_string(transport->size()) + " processes" + in_groups,
       .wanted = "one process per device",
       .cure =
           "start as many processes as the mesh has devices; for an MpmdMesh also set num_groups"});
}

}  // namespace

const Placement* placement_of(const Type& type, const Mesh& mesh, const Sharding& sharding) {
  check_number_of_devices(mesh);
  static auto* table = new Interned<Placement>;
  std::string key = to_string(type) + to_string(mesh);
  for (const AtomList& dim : sharding.dims) {
    key.append(reinterpret_cast<const char*>(dim.data()), dim.size());
    key += '|';
  }
  return table->find(key, [&] {
    return Placement{type, mesh, sharding, Layout(mesh, sharding, type.shape)};
  });
}

const Placement* replicated_placement(const Type& type, const Mesh& mesh) {
  return placement_of(type, mesh, replicated_sharding(type.rank()));
}

std::mutex& donation_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

namespace {

/// The device of a mesh that a process computes for. The mesh covers all processes, or those of one
/// group.
int device_of(const Mesh& mesh, int rank) {
  const bool has_all = mesh.num_devices() == run::transport()->size();
  return has_all ? rank : rank % run::devices_per_group();
}

/// The tile of a placement that process `rank` holds if its group holds the array.
std::int64_t tile_of(const Placement& placement, int rank) {
  return placement.layout.tile_at(device_digits(placement.mesh, device_of(placement.mesh, rank)));
}

}  // namespace

bool is_held_by(const HolderGroups& groups, std::int64_t group) {
  return groups == nullptr || std::binary_search(groups->begin(), groups->end(), group);
}

bool is_held_here(const HolderGroups& groups) {
  const run::Transport* transport = run::transport();
  return transport == nullptr || is_held_by(groups, transport->rank() / run::devices_per_group());
}

std::vector<std::int64_t> held_tiles(const Placement& placement) {
  if (const run::Transport* transport = run::transport()) {
    return {tile_of(placement, transport->rank())};
  }
  std::vector<std::int64_t> all(static_cast<std::size_t>(placement.layout.num_tiles()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

namespace {

/// The boxes of the tiles that this process holds.
std::vector<Box> held_boxes(const Placement& placement) {
  std::vector<Box> boxes;
  for (std::int64_t tile : held_tiles(placement)) boxes.push_back(placement.layout.box(tile));
  return boxes;
}

bool is_within(const Box& inner, const Box& outer) { return intersect(inner, outer) == inner; }

bool is_held_by_rank(const HolderGroups& groups, int rank) {
  return is_held_by(groups, rank / run::devices_per_group());
}

/// Whether every process that holds the array has all elements of its tile in `to`. All processes
/// get the same answer.
bool is_local(const Tiled& from, const Placement& to) {
  const run::Transport* transport = run::transport();
  if (transport == nullptr) return true;
  for (int rank = 0; rank < transport->size(); ++rank) {
    if (!is_held_by_rank(from.groups, rank)) continue;
    const Box source = from.placement->layout.box(tile_of(*from.placement, rank));
    if (!is_within(to.layout.box(tile_of(to, rank)), source)) return false;
  }
  return true;
}

enum class Readers : std::uint8_t { everyone, holders };

/// Decides which process sends a tile to which reader.
class TileOwners {
 public:
  explicit TileOwners(const Tiled& array)
      : array_(array),
        num_devices_(array.placement->mesh.num_devices() == run::transport()->size()
                         ? run::transport()->size()
                         : run::devices_per_group()),
        devices_(static_cast<std::size_t>(array.placement->layout.num_tiles()), 0) {
    for (int device = num_devices_; device-- > 0;) {
      devices_[static_cast<std::size_t>(tile_of(*array.placement, device))] = device;
    }
  }

  /// The lowest device with the tile in the group of `reader` or, if that group does not hold the
  /// array, in the first group that does.
  int owner(std::int64_t tile, int reader) const {
    int group = reader / num_devices_;
    if (!is_held_by_rank(array_.groups, reader)) group = static_cast<int>(array_.groups->front());
    return group * num_devices_ + devices_[static_cast<std::size_t>(tile)];
  }
  bool has(std::int64_t tile, int rank) const {
    return is_held_by_rank(array_.groups, rank) && tile_of(*array_.placement, rank) == tile;
  }

 private:
  const Tiled& array_;
  int num_devices_;  // per copy of the array
  std::vector<int> devices_;
};

bool is_held_by_all(const HolderGroups& groups) {
  const int count = run::transport()->size() / run::devices_per_group();
  return groups == nullptr || std::ssize(*groups) == count;
}

/// All tiles; this process receives those that it does not hold from their owners. Empty if only
/// the holders of the array read it and this process is not one of them.
run::Tiles all_tiles(const Tiled& from, Readers readers, const char* op, const Span& where) {
  run::Transport* transport = run::transport();
  if (transport == nullptr) return from.tiles;
  const Layout& layout = from.placement->layout;
  if (layout.num_tiles() == 1 && (is_held_by_all(from.groups) || readers == Readers::holders)) {
    return from.tiles;
  }
  const TileOwners owners(from);
  const int own = transport->rank();
  const auto reads = [&](int rank) {
    return readers == Readers::everyone || is_held_by_rank(from.groups, rank);
  };
  if (!reads(own)) return {};
  run::Tiles all;
  std::vector<run::Transport::Send> sends;
  std::vector<run::Transport::Receive> receives;
  for (std::int64_t tile = 0; tile < layout.num_tiles(); ++tile) {
    if (owners.has(tile, own)) {
      all.push_back(from.tiles[0]);
    } else {
      const std::int64_t bytes = box_bytes(layout.box(tile), from.placement->type.dtype);
      all.push_back(std::make_shared<run::Buffer>(bytes));
      receives.push_back(
          {owners.owner(tile, own), {all.back()->data(), static_cast<std::size_t>(bytes)}});
    }
    for (int rank = 0; rank < transport->size(); ++rank) {
      if (!reads(rank) || owners.has(tile, rank) || owners.owner(tile, rank) != own) continue;
      sends.push_back({rank, {all.back()->data(), static_cast<std::size_t>(all.back()->size())}});
    }
  }
  const run::CollectiveLabel label{.kind = "gather", .op = op, .span = where};
  transport->begin(label);
  transport->exchange(sends, receives);
  return all;
}

ops::HostArray joined(const Placement& placement, const run::Tiles& all) {
  ops::HostArray array(placement.type);
  const Box whole_box = whole(placement.type.shape);
  for (std::size_t k = 0; k < all.size(); ++k) {
    const Box box = placement.layout.box(static_cast<std::int64_t>(k));
    copy_box(box, size_bytes(placement.type.dtype), box, all[k]->data(), whole_box,
             array.bytes().data());
  }
  return array;
}

}  // namespace

Tiled move_tiles(const Tiled& from, const Placement* to, const char* op, const Span& where) {
  const Placement& source = *from.placement;
  Tiled moved{to, {}, from.groups};
  const bool has_same_devices = run::transport() == nullptr || source.mesh == to->mesh;
  const bool is_alike =
      has_same_devices && source.mesh.axes() == to->mesh.axes() && source.sharding == to->sharding;
  if ((source.layout.num_tiles() == 1 && to->layout.num_tiles() == 1) || is_alike) {
    moved.tiles = from.tiles;
    return moved;
  }
  const bool is_here = is_held_here(from.groups);
  if (!is_local(from, *to)) {
    const run::Tiles all = all_tiles(from, Readers::holders, op, where);
    if (is_here) moved.tiles = scatter(joined(source, all), *to);
    return moved;
  }
  if (!is_here) return moved;
  const std::size_t element = size_bytes(to->type.dtype);
  const std::vector<Box> sources = held_boxes(source);
  for (const Box& box : held_boxes(*to)) {
    auto buffer = std::make_shared<run::Buffer>(box_bytes(box, to->type.dtype));
    for (std::size_t k = 0; k < sources.size(); ++k) {
      copy_box(intersect(box, sources[k]), element, sources[k], from.tiles[k]->data(), box,
               buffer->data());
    }
    moved.tiles.push_back(std::move(buffer));
  }
  return moved;
}

ops::HostArray gather(const Tiled& from, const char* op, const Span& where) {
  return joined(*from.placement, all_tiles(from, Readers::everyone, op, where));
}

run::BufferPtr gather_tile(const Tiled& from, std::int64_t tile, const char* op,
                           const Span& where) {
  return all_tiles(from, Readers::everyone, op, where)[static_cast<std::size_t>(tile)];
}

run::Tiles scatter(const ops::HostArray& array, const Placement& to) {
  const Box all = whole(to.type.shape);
  run::Tiles tiles;
  for (const Box& box : held_boxes(to)) {
    auto buffer = std::make_shared<run::Buffer>(box_bytes(box, to.type.dtype));
    copy_box(box, size_bytes(to.type.dtype), all, array.bytes().data(), box, buffer->data());
    tiles.push_back(std::move(buffer));
  }
  return tiles;
}

Tiled bring(Tiled x, const HolderGroups& groups, const char* op, const Span& where) {
  run::Transport* transport = run::transport();
  if (transport == nullptr) return {x.placement, std::move(x.tiles), groups};
  const int devices = run::devices_per_group();
  const int own = transport->rank();
  std::vector<run::Transport::Send> sends;
  std::vector<run::Transport::Receive> receives;
  bool is_sent = false;
  for (int rank = 0; rank < transport->size(); ++rank) {
    if (!is_held_by_rank(groups, rank) || is_held_by_rank(x.groups, rank)) continue;
    is_sent = true;
    const int from = static_cast<int>(x.groups->front()) * devices + rank % devices;
    if (rank == own) {
      const Box box = x.placement->layout.box(tile_of(*x.placement, own));
      x.tiles = {std::make_shared<run::Buffer>(box_bytes(box, x.placement->type.dtype))};
      receives.push_back(
          {from, {x.tiles[0]->data(), static_cast<std::size_t>(x.tiles[0]->size())}});
    } else if (from == own) {
      sends.push_back({rank, {x.tiles[0]->data(), static_cast<std::size_t>(x.tiles[0]->size())}});
    }
  }
  if (is_sent) {
    const run::CollectiveLabel label{.kind = "send", .op = op, .span = where};
    transport->begin(label);
    transport->exchange(sends, receives);
  }
  if (!is_held_here(groups)) x.tiles.clear();
  return {x.placement, std::move(x.tiles), groups};
}

HolderGroups common_groups(const std::vector<Tiled>& arrays) {
  HolderGroups common = nullptr;
  const Tiled* largest = nullptr;
  for (const Tiled& array : arrays) {
    if (array.groups == nullptr) continue;
    const bool is_larger = largest == nullptr ||
                           size_bytes(array.placement->type) > size_bytes(largest->placement->type);
    if (is_larger) largest = &array;
    if (common == nullptr || *common == *array.groups) {
      common = array.groups;
      continue;
    }
    std::vector<std::int64_t> both;
    std::set_intersection(common->begin(), common->end(), array.groups->begin(),
                          array.groups->end(), std::back_inserter(both));
    common = std::make_shared<const std::vector<std::int64_t>>(std::move(both));
  }
  return common != nullptr && common->empty() ? largest->groups : common;
}

}  // namespace tessera::detail
