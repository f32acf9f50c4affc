// Interned placements, and arrays of the host as tiles.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <unordered_map>

#include <tessera/error.h>

#include "api/array_node.h"
#include "run/world.h"

namespace tessera::detail {

namespace {

/// The objects of a kind that are alive, by their text.
template <typename T>
class Interned {
 public:
  static Interned& instance() {
    static auto* one = new Interned;  // arrays may outlive every other static object
    return *one;
  }

  template <typename Make>
  std::shared_ptr<const T> find(const std::string& key, const Make& make) {
    if (std::shared_ptr<const T> known = find(key)) return known;
    // Made without the mutex: if memory runs out, it is removed at once, which needs the mutex.
    const std::shared_ptr<const T> made(new T(make()), [this, key](const T* last) {
      delete last;
      forget(key);
    });
    const std::lock_guard<std::mutex> lock(mutex_);
    std::weak_ptr<const T>& item = items_[key];
    if (std::shared_ptr<const T> known = item.lock()) return known;  // of another thread
    item = made;
    return made;
  }

  std::size_t size() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return items_.size();
  }

 private:
  std::shared_ptr<const T> find(const std::string& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto item = items_.find(key);
    return item == items_.end() ? nullptr : item->second.lock();
  }

  void forget(const std::string& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto item = items_.find(key);
    // Another thread may have made the same one again.
    if (item != items_.end() && item->second.expired()) items_.erase(item);
  }

  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<const T>> items_;
};

void check_number_of_devices(const Mesh& mesh) {
  const run::World& world = run::world();
  if (world.can_hold(mesh)) return;
  const bool has_groups = world.num_groups > 1;
  const std::string groups = has_groups ? fmt::format(" in {} groups of {} devices",
                                                      world.num_groups, world.devices_per_group)
                                        : "";
  const std::string wanted =
      has_groups ? fmt::format("{} devices (one group) or {} devices (all groups)",
                               world.devices_per_group, world.num_groups * world.devices_per_group)
                 : fmt::format("a multiple of {} devices", world.size());
  throw UserError(
      {.what = "the devices of the mesh cannot be divided evenly among the processes of this run",
       .where = trace::call_span(std::source_location()),
       .found = fmt::format("{} with {} devices, and {} processes{}", to_string(mesh),
                            mesh.num_devices(), world.size(), groups),
       .wanted = wanted,
       .cure = has_groups
                   ? "set num_groups to the number of groups of the MpmdMesh"
                   : "start a number of processes that divides the number of devices of the mesh"});
}

}  // namespace

ParamInfoPtr intern(ParamInfo info) {
  std::string key = info.path + '\n';
  if (info.is_annotated) key += to_string(info.spec);
  if (info.names == AxisNames::logical) key += " of logical names";
  if (!info.is_trained) key += " not trained";
  return Interned<ParamInfo>::instance().find(key, [&] { return std::move(info); });
}

std::size_t num_interned() {
  return Interned<ParamInfo>::instance().size() + Interned<Placement>::instance().size();
}

PlacementPtr placement_of(const Type& type, const Mesh& mesh, const Sharding& sharding) {
  check_number_of_devices(mesh);
  std::string key = to_string(type) + to_string(mesh);
  for (const AtomList& dim : sharding.dims) {
    key.append(reinterpret_cast<const char*>(dim.data()), dim.size());
    key += '|';
  }
  return Interned<Placement>::instance().find(key, [&] {
    return Placement{type, mesh, sharding, Layout(mesh, sharding, type.shape)};
  });
}

PlacementPtr replicated_placement(const Type& type, const Mesh& mesh) {
  return placement_of(type, mesh, replicated_sharding(type.rank()));
}

void append_address(std::string& key, const PlacementPtr& placement) {
  const Placement* address = placement.get();
  key.append(reinterpret_cast<const char*>(&address), sizeof(address));
}

HolderGroups asked_groups(const std::vector<std::int64_t>& mpmd_idxs, const Mesh& mesh,
                          const std::string& subject, const Span& where) {
  if (mpmd_idxs.empty()) return nullptr;
  const run::World& world = run::world();
  const bool is_shared = world.transport != nullptr;
  bool is_valid = mpmd_idxs.front() >= 0 && (!is_shared || mpmd_idxs.back() < world.num_groups);
  for (std::size_t i = 1; i < mpmd_idxs.size(); ++i) {
    is_valid = is_valid && mpmd_idxs[i - 1] < mpmd_idxs[i];
  }
  // Only a mesh with as many devices as a group has is that of a group.
  const bool is_whole =
      is_shared && world.num_groups > 1 && mesh.num_devices() != world.devices_per_group;
  if (is_valid && !is_whole) {
    return std::make_shared<const std::vector<std::int64_t>>(mpmd_idxs);
  }
  throw UserError(
      {.what = subject + ": these groups cannot hold an array over this mesh",
       .where = where,
       .found = fmt::format("mpmd_idxs [{}] and {}", fmt::join(mpmd_idxs, ", "), to_string(mesh)),
       .wanted =
           is_shared
               ? fmt::format(
                     "ascending numbers below {}, and the mesh of a group, which has {} devices",
                     world.num_groups, world.devices_per_group)
               : "ascending numbers, 0 or more",
       .cure =
           "use the groups of an MpmdMesh, and its group_mesh(); an empty list means all groups"});
}

std::mutex& donation_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

Tiled move_tiles(const Tiled& from, const PlacementPtr& to, const char* op, const Span& where) {
  return run::move_tiles(from, to, {.kind = "gather", .op = op, .span = where});
}

run::BufferPtr gather_tile(const Tiled& from, std::int64_t tile, const char* op,
                           const Span& where) {
  return run::gather_tile(from, tile, {.kind = "gather", .op = op, .span = where});
}

Tiled bring(Tiled x, const HolderGroups& groups, const char* op, const Span& where) {
  return run::bring(std::move(x), groups, {.kind = "send", .op = op, .span = where});
}

ops::HostArray gather(const Tiled& from, const char* op, const Span& where) {
  ops::HostArray array(from.placement->type);
  gather(from, array.bytes(), op, where);
  return array;
}

void gather(const Tiled& from, std::span<std::byte> to, const char* op, const Span& where) {
  run::gather(from, to, {.kind = "gather", .op = op, .span = where});
}

run::Tiles scatter(const ops::HostArray& array, const Placement& to) {
  return run::cut(array.bytes(), to);
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
