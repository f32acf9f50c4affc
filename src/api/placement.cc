// Interned placements, and moving tiles between layouts by copying boxes.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_map>

#include <tessera/error.h>

#include "api/array_node.h"
#include "run/processes.h"

namespace tessera::detail {

namespace {

/// Values by their text; addresses stay valid.
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
  if (transport == nullptr || mesh.axes().empty() || mesh.num_devices() == transport->size()) {
    return;
  }
  throw UserError({.what = "a mesh has another number of devices than this run has processes",
                   .where = trace::call_span(std::source_location()),
                   .found = to_string(mesh) + " with " + std::to_string(mesh.num_devices()) +
                            " devices and " + std::to_string(transport->size()) + " processes",
                   .wanted = "one process per device",
                   .cure = "start as many processes as the mesh has devices"});
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

std::vector<std::int64_t> held_tiles(const Placement& placement) {
  if (const run::Transport* transport = run::transport()) {
    return {placement.layout.tile_at(device_digits(placement.mesh, transport->rank()))};
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

/// Whether every process has what it needs; the same answer in all of them.
bool is_local(const Placement& from, const Placement& to) {
  const run::Transport* transport = run::transport();
  if (transport == nullptr) return true;
  for (int device = 0; device < transport->size(); ++device) {
    const std::int64_t source = from.layout.tile_at(device_digits(from.mesh, device));
    const std::int64_t target = to.layout.tile_at(device_digits(to.mesh, device));
    if (!is_within(to.layout.box(target), from.layout.box(source))) return false;
  }
  return true;
}

/// The lowest rank that holds each tile.
std::vector<int> owners_of(const Placement& placement, int num_processes) {
  std::vector<int> owners(static_cast<std::size_t>(placement.layout.num_tiles()), 0);
  for (int rank = num_processes; rank-- > 0;) {
    const std::int64_t tile = placement.layout.tile_at(device_digits(placement.mesh, rank));
    owners[static_cast<std::size_t>(tile)] = rank;
  }
  return owners;
}

/// All tiles; those that this process does not hold come from their owners.
run::Tiles all_tiles(const Placement& from, const run::Tiles& tiles, const char* op,
                     const Span& where) {
  run::Transport* transport = run::transport();
  if (transport == nullptr || from.layout.num_tiles() == 1) return tiles;
  const std::vector<int> owners = owners_of(from, transport->size());
  const std::int64_t own = held_tiles(from)[0];
  run::Tiles all;
  std::vector<run::Transport::Send> sends;
  std::vector<run::Transport::Receive> receives;
  for (std::int64_t tile = 0; tile < from.layout.num_tiles(); ++tile) {
    const int owner = owners[static_cast<std::size_t>(tile)];
    if (tile == own) {
      all.push_back(tiles[0]);
    } else {
      const std::int64_t bytes = box_bytes(from.layout.box(tile), from.type.dtype);
      all.push_back(std::make_shared<run::Buffer>(bytes));
      receives.push_back({owner, {all.back()->data(), static_cast<std::size_t>(bytes)}});
    }
    for (int rank = 0; owner == transport->rank() && rank < transport->size(); ++rank) {
      if (from.layout.tile_at(device_digits(from.mesh, rank)) == tile) continue;
      sends.push_back({rank, {tiles[0]->data(), static_cast<std::size_t>(tiles[0]->size())}});
    }
  }
  const run::CollectiveLabel label{.kind = "gather", .op = op, .span = where};
  transport->begin(label);
  transport->exchange(sends, receives);
  return all;
}

}  // namespace

run::Tiles move_tiles(const Placement& from, const run::Tiles& tiles, const Placement& to,
                      const char* op, const Span& where) {
  if (from.layout.num_tiles() == 1 && to.layout.num_tiles() == 1) return tiles;
  const bool has_same_devices = run::transport() == nullptr || from.mesh == to.mesh;
  if (has_same_devices && from.mesh.axes() == to.mesh.axes() && from.sharding == to.sharding) {
    return tiles;
  }
  if (!is_local(from, to)) return scatter(gather(from, tiles, op, where), to);
  const std::size_t element = size_bytes(to.type.dtype);
  const std::vector<Box> sources = held_boxes(from);
  run::Tiles moved;
  for (const Box& box : held_boxes(to)) {
    auto buffer = std::make_shared<run::Buffer>(box_bytes(box, to.type.dtype));
    for (std::size_t k = 0; k < sources.size(); ++k) {
      copy_box(intersect(box, sources[k]), element, sources[k], tiles[k]->data(), box,
               buffer->data());
    }
    moved.push_back(std::move(buffer));
  }
  return moved;
}

ops::HostArray gather(const Placement& from, const run::Tiles& tiles, const char* op,
                      const Span& where) {
  ops::HostArray array(from.type);
  const Box all = whole(from.type.shape);
  const run::Tiles gathered = all_tiles(from, tiles, op, where);
  for (std::size_t k = 0; k < gathered.size(); ++k) {
    const Box box = from.layout.box(static_cast<std::int64_t>(k));
    copy_box(box, size_bytes(from.type.dtype), box, gathered[k]->data(), all, array.bytes().data());
  }
  return array;
}

run::BufferPtr gather_tile(const Placement& from, const run::Tiles& tiles, std::int64_t tile,
                           const char* op, const Span& where) {
  return all_tiles(from, tiles, op, where)[static_cast<std::size_t>(tile)];
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

}  // namespace tessera::detail
