// Interned placements, and arrays of the host as tiles.
#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <unordered_map>

#include <tessera/error.h>

#include "api/array_node.h"
#include "run/world.h"

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
  const run::World& world = run::world();
  if (world.can_hold(mesh)) return;
  const bool has_groups = world.num_groups > 1;
  const std::string groups = has_groups ? fmt::format(" in {} groups of {} devices",
                                                      world.num_groups, world.devices_per_group)
                                        : "";
  const std::string wanted =
      has_groups ? fmt::format("{} devices, those of a group, or {}, those of all groups",
                               world.devices_per_group, world.num_groups * world.devices_per_group)
                 : fmt::format("a multiple of {} devices", world.size());
  throw UserError(
      {.what = "the processes of this run cannot own equally many devices of the mesh",
       .where = trace::call_span(std::source_location()),
       .found = fmt::format("{} with {} devices, and {} processes{}", to_string(mesh),
                            mesh.num_devices(), world.size(), groups),
       .wanted = wanted,
       .cure = has_groups ? "set num_groups to the number of groups of the MpmdMesh"
                          : "start a number of processes that divides the devices of the mesh"});
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

Tiled move_tiles(const Tiled& from, const Placement* to, const char* op, const Span& where) {
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
  run::gather(from, array.bytes(), {.kind = "gather", .op = op, .span = where});
  return array;
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
