// Handles: arrays, parameters, operands, reading.
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include <tessera/array.h>
#include <tessera/error.h>
#include <tessera/ops.h>
#include <tessera/shardings.h>

#include "api/array_node.h"
#include "api/call/donation.h"
#include "run/world.h"

namespace tessera {

using detail::ArrayNode;
using detail::node_of;

namespace detail {

namespace {

const ParamInfoPtr& no_info() {
  static const auto* const info = new ParamInfoPtr(intern({}));
  return *info;
}

}  // namespace

Array with_info(Array array, const ParamInfoPtr& info) {
  if (array.is_empty() || array.node()->info == info) return array;
  const std::lock_guard<std::mutex> lock(donation_mutex());
  auto node = std::make_shared<ArrayNode>(*array.node());
  node->info = info;
  return Array(std::move(node));
}

Array make_concrete(PlacementPtr placement, run::Tiles tiles, HolderGroups groups) {
  auto node = std::make_shared<ArrayNode>();
  node->type = placement->type;
  node->placement = placement;
  node->tiles = std::move(tiles);
  node->groups = std::move(groups);
  node->transport = run::world().transport;
  return Array(std::move(node));
}

Array make_traced(std::shared_ptr<trace::Trace> trace, ir::ValueId value) {
  auto node = std::make_shared<ArrayNode>();
  node->type = trace->function().type(value);
  node->trace = std::move(trace);
  node->value = value;
  return Array(std::move(node));
}

Array make_abstract(Type type) {
  auto node = std::make_shared<ArrayNode>();
  node->type = std::move(type);
  return Array(std::move(node));
}

const NodePtr& node_of(const Array& array, const Span& where) {
  if (!array.is_empty()) return array.node();
  fail_empty("", where);
}

void fail_empty(const std::string& subject, const Span& where) {
  throw UserError(
      {.what = "an empty Array was used",
       .where = where,
       .found =
           (subject.empty() ? "" : subject + ": ") + "a default-constructed or moved-from handle",
       .wanted = "an array",
       .cure =
           "assign an array to it first; use std::move only on handles that are no longer needed"});
}

[[noreturn]] static void report_no_values(const ArrayNode& node, const Span& where) {
  if (node.is_traced()) {
    throw UserError(
        {.what = "the values of a traced array are not known",
         .where = where,
         .found = "a traced " + to_string(node.type),
         .wanted = "a concrete array",
         .cure = "return the array from the traced function and read it outside; inside it, use "
                 "where() for choices and dynamic_slice for positions that depend on values"});
  }
  throw UserError({.what = "an abstract array has no values",
                   .where = where,
                   .found = "an abstract " + to_string(node.type),
                   .wanted = "a concrete array",
                   .cure = "eval_shape returns types only; call the function to get arrays"});
}

void fail_if_donated(const ArrayNode& node, const Span& where) {
  if (node.donation == nullptr) return;
  const bool is_lost = node.donation->has_failed;
  throw UserError({.what = "this array was donated and no longer has values",
                   .where = where,
                   .found = fmt::format("argument {} {}, donated at {}{}",
                                        node.donation->paths->at(node.donated_leaf),
                                        to_string(node.type), to_string(node.donation->where),
                                        is_lost ? ", where the call failed while it ran" : ""),
                   .wanted = "an array that has not been donated",
                   .cure = is_lost ? "restore it from a checkpoint or create it again"
                                   : "use the array that the call returned, or take the argument "
                                     "out of donate_argnums"});
}

void fail_if_elsewhere(const ArrayNode& node, const Span& where) {
  const run::World& here = run::world();
  if (node.transport == here.transport) return;
  const Placement& placement = *node.placement;
  const bool has_all_tiles = here.can_hold(placement.mesh) && is_held_here(node.groups) &&
                             node.tiles.size() == held_tiles(placement).size();
  if (has_all_tiles) return;
  throw UserError(
      {.what = "this process does not hold all the tiles of the array that this context needs",
       .where = where,
       .found = fmt::format("{} as {}, made {}", to_string(node.type),
                            to_string(to_spec(placement.mesh, placement.sharding)),
                            here.transport == nullptr
                                ? "in a context in which processes share the devices"
                                : "in a context in which this process computes alone"),
       .wanted = "an array that this process holds completely in both contexts",
       .cure = "replicate it with device_put(x, P()) in the context in which it was made"});
}

Tiled tiles_of(const Array& array, const Span& where) {
  const NodePtr& node = node_of(array, where);
  if (!node->is_concrete()) report_no_values(*node, where);
  const std::lock_guard<std::mutex> lock(donation_mutex());
  fail_if_donated(*node, where);
  fail_if_elsewhere(*node, where);
  return {node->placement, node->tiles, node->groups};
}

std::string describe(const Array& array) {
  if (array.is_empty()) return "an empty Array";
  const ArrayNode& node = *array.node();
  std::string text = to_string(node.type);
  if (node.info != nullptr && !node.info->path.empty()) {
    text += " (parameter " + node.info->path + ")";
  }
  return text;
}

}  // namespace detail

Array::Array() = default;
Array::Array(const Array& other) = default;
Array::Array(Array&& other) noexcept = default;
Array& Array::operator=(const Array& other) & = default;
Array& Array::operator=(Array&& other) & noexcept = default;
Array::~Array() = default;
Array::Array(std::shared_ptr<ArrayNode> node) : node_(std::move(node)) {}

const Type& Array::type(std::source_location where) const {
  if (node_ == nullptr) node_of(*this, trace::call_span(where));  // throws
  return node_->type;
}
std::int64_t Array::size(std::source_location where) const { return num_elements(shape(where)); }

std::int64_t Array::dim(std::int64_t axis, std::source_location where) const {
  const std::int64_t index = axis < 0 ? axis + rank(where) : axis;
  if (index >= 0 && index < rank(where)) return shape()[static_cast<std::size_t>(index)];
  throw UserError({.what = fmt::format("dim: axis {} is out of range", axis),
                   .where = trace::call_span(where),
                   .found = detail::describe(*this),
                   .wanted = rank() == 0
                                 ? std::string("an array of rank 1 or more")
                                 : fmt::format("an axis from {} to {}", -rank(), rank() - 1),
                   .cure = "count axes from 0, or from the end with negative numbers"});
}

bool Array::is_concrete() const { return node_ != nullptr && node_->is_concrete(); }
bool Array::is_traced() const { return node_ != nullptr && node_->is_traced(); }

bool Array::is_deleted() const {
  if (node_ == nullptr) return false;
  const std::lock_guard<std::mutex> lock(detail::donation_mutex());
  return node_->donation != nullptr;
}

NamedSharding Array::sharding(std::source_location where) const {
  const detail::NodePtr& node = node_of(*this, where);
  if (!node->is_concrete()) detail::report_no_values(*node, where);
  NamedSharding sharding;
  sharding.mesh = node->placement->mesh;
  sharding.spec = to_spec(sharding.mesh, node->placement->sharding);
  if (node->groups != nullptr) sharding.mpmd_idxs = *node->groups;
  return sharding;
}

namespace {

/// The C++ type of an element.
const char* cpp_name(DType dtype) {
  static constexpr const char* kNames[] = {
      "bool",         "std::int8_t",   "std::int16_t",  "std::int32_t",  "std::int64_t",
      "std::uint8_t", "std::uint16_t", "std::uint32_t", "std::uint64_t", "float16",
      "bfloat16",     "float",         "double"};
  return kNames[static_cast<std::size_t>(dtype)];
}

}  // namespace

void Array::read(DType dtype, void* out, const std::source_location& where) const {
  const detail::Tiled tiles = detail::tiles_of(*this, where);
  const bool reads_bytes = dtype == DType::u8 && this->dtype() == DType::boolean;
  if (dtype != this->dtype() && !reads_bytes) {
    throw UserError({.what = "to_vector: the array has a different element type",
                     .where = where,
                     .found = detail::describe(*this),
                     .wanted = fmt::format("an array of {}", name(dtype)),
                     .cure = fmt::format("read it with to_vector<{}>(), or convert it first: "
                                         "astype(x, DType::{})",
                                         cpp_name(this->dtype()),
                                         dtype == DType::boolean ? "boolean" : name(dtype))});
  }
  const auto size = static_cast<std::size_t>(size_bytes(type(where)));
  detail::gather(tiles, std::span(static_cast<std::byte*>(out), size), "to_vector", where);
}

namespace {

/// The only element, as T.
template <typename T>
T only_element(const Array& array, const std::source_location& where) {
  const detail::Tiled tiles = detail::tiles_of(array, where);
  if (array.size() != 1) {
    throw UserError({.what = "item: the array does not have exactly one element",
                     .where = where,
                     .found = detail::describe(array),
                     .wanted = "an array of size 1",
                     .cure = "reduce it first, or read it with to_vector"});
  }
  const ops::HostArray host = detail::gather(tiles, "item", where);
  return ops::dispatch(array.dtype(), [&](auto element) {
    return static_cast<T>(host.data<decltype(element)>()[0]);
  });
}

}  // namespace

double Array::real_item(const std::source_location& where) const {
  return only_element<double>(*this, where);
}

std::int64_t Array::integer_item(const std::source_location& where) const {
  return only_element<std::int64_t>(*this, where);
}

namespace {

Array one_tile(const detail::Placement& placement, std::int64_t tile, run::BufferPtr buffer) {
  const Type type{placement.type.dtype, placement.layout.box(tile).size};
  return detail::make_concrete(detail::replicated_placement(type, Mesh()), {std::move(buffer)});
}

}  // namespace

Array Array::local_data(std::int64_t device, std::source_location where) const {
  const detail::Tiled tiles = detail::tiles_of(*this, where);
  const detail::Placement& placement = *node_->placement;
  if (device < 0 || device >= placement.mesh.num_devices()) {
    throw UserError(
        {.what = fmt::format("local_data: the mesh has no device {}", device),
         .where = where,
         .found = fmt::format("mesh {} with {} devices", to_string(placement.mesh),
                              placement.mesh.num_devices()),
         .wanted = fmt::format("a device from 0 to {}", placement.mesh.num_devices() - 1),
         .cure = placement.mesh.is_in_order() ? "devices are numbered row-major over the mesh"
                                              : "take ids from the mesh: mesh.device_ids()"});
  }
  const std::int64_t tile = placement.layout.tile_at(device_digits(placement.mesh, device));
  return one_tile(placement, tile, detail::gather_tile(tiles, tile, "local_data", Span(where)));
}

namespace {

/// Which of the copies of an array this process has, and what to add to the device ids of the mesh:
/// devices are numbered group by group. Without a mesh each process has a copy.
struct OwnCopy {
  std::int64_t number = 0;
  std::int64_t first_device = 0;
};

OwnCopy own_copy(const detail::Placement& placement, const detail::HolderGroups& groups) {
  const run::World& world = run::world();
  const bool has_mesh = !placement.mesh.axes().empty();
  if (has_mesh && world.processes_of(placement.mesh) == world.size()) return {};
  const std::int64_t group = world.group();
  const std::int64_t number =
      groups == nullptr ? group
                        : std::lower_bound(groups->begin(), groups->end(), group) - groups->begin();
  if (has_mesh) return {number, group * placement.mesh.num_devices()};
  const std::int64_t per_group = world.processes_per_group();
  return {number * per_group + world.rank() % per_group, 0};
}

/// Whether this process owns a device of its copy of the array.
bool owns(const detail::Placement& placement, std::int64_t device) {
  const run::World& world = run::world();
  if (world.transport == nullptr || placement.mesh.axes().empty()) return true;
  const std::int64_t count = world.processes_of(placement.mesh);
  return device / (placement.mesh.num_devices() / count) == world.rank() % count;
}

}  // namespace

std::vector<Shard> Array::addressable_shards(std::source_location where) const {
  const detail::Tiled array = detail::tiles_of(*this, where);
  if (!detail::is_held_here(array.groups)) return {};
  const detail::Placement& placement = *node_->placement;
  const std::vector<std::int64_t> held = detail::held_tiles(placement);
  const OwnCopy own = own_copy(placement, array.groups);
  const std::vector<std::int64_t> ids = placement.mesh.device_ids();
  const std::int64_t replicas =
      placement.mesh.num_devices() / std::max<std::int64_t>(1, placement.layout.num_tiles());
  const std::vector<Atom> atoms = atoms_of(placement.mesh);
  std::vector<std::int64_t> copies(static_cast<std::size_t>(placement.layout.num_tiles()),
                                   own.number * replicas);
  std::vector<Shard> shards;
  for (std::size_t position = 0; position < ids.size(); ++position) {
    const std::int64_t tile =
        placement.layout.tile_at(position_digits(atoms, static_cast<std::int64_t>(position)));
    const std::int64_t replica = copies[static_cast<std::size_t>(tile)]++;
    if (!owns(placement, ids[position])) continue;
    const std::int64_t device = own.first_device + ids[position];
    const auto at = std::find(held.begin(), held.end(), tile) - held.begin();
    shards.push_back(
        {.device = device,
         .index = ranges_of(placement.layout.box(tile)),
         .replica_id = replica,
         .data = one_tile(placement, tile, array.tiles[static_cast<std::size_t>(at)])});
  }
  return shards;
}

std::span<const std::byte> Shard::bytes(std::source_location where) const {
  const run::Tiles tiles = detail::tiles_of(data, where).tiles;
  require(tiles.size() == 1, "a shard is one tile");
  return {tiles[0]->data(), static_cast<std::size_t>(tiles[0]->size())};
}

Array detail::make_array(const Type& type, const NamedSharding& sharding, FillTile fill,
                         void* target, const std::source_location& where) {
  PlacementPtr placement = placement_of(
      type, sharding.mesh,
      to_sharding(sharding.mesh, sharding.spec, type, "make_array_from_callback", where));
  const HolderGroups groups =
      asked_groups(sharding.mpmd_idxs, sharding.mesh, "make_array_from_callback", where);
  run::Tiles tiles;
  if (!is_held_here(groups)) return make_concrete(placement, {}, groups);
  for (const std::int64_t tile : held_tiles(*placement)) {
    const Box box = placement->layout.box(tile);
    const std::int64_t bytes = size_bytes(Type{type.dtype, box.size});
    tiles.push_back(std::make_shared<run::Buffer>(bytes));
    fill(target, ranges_of(box), {tiles.back()->data(), static_cast<std::size_t>(bytes)});
  }
  return make_concrete(placement, std::move(tiles), groups);
}

const Array& Array::block_until_ready(std::source_location where) const {
  for (const run::BufferPtr& tile : detail::tiles_of(*this, where).tiles) {
    if (tile != nullptr) tile->wait();
  }
  return *this;
}

Array Array::slice(std::int64_t axis, std::int64_t start, std::int64_t limit,
                   std::source_location where) const {
  return tessera::slice(Operand(*this, where), axis, start, limit);
}

Array Array::operator[](Index index) const {
  if (rank(index.where) == 0) {
    throw UserError({.what = "x[i]: a scalar has no dimensions",
                     .where = index.where,
                     .found = detail::describe(*this),
                     .wanted = "an array of rank 1 or more",
                     .cure = "use the scalar itself"});
  }
  const std::int64_t at = index.value < 0 ? index.value + shape()[0] : index.value;
  if (at < 0 || at >= shape()[0]) {
    throw UserError({.what = fmt::format("x[i]: index {} is out of range", index.value),
                     .where = index.where,
                     .found = detail::describe(*this),
                     .wanted = fmt::format("an index from {} to {}", -shape()[0], shape()[0] - 1),
                     .cure = "check the index against x.dim(0)"});
  }
  const CallScope scope(index.where);
  return squeeze(tessera::slice(Operand(*this, index.where), 0, at, at + 1), 0);
}

Param::Param() : info_(detail::no_info()) {}

Param::Param(Array value, std::string path)
    : Param(std::move(value), detail::intern({.path = std::move(path), .spec = {}})) {}

Param::Param(Array value, std::string path, PartitionSpec spec, AxisNames names)
    : Param(std::move(value), detail::intern({.path = std::move(path),
                                              .spec = std::move(spec),
                                              .is_annotated = true,
                                              .names = names})) {}

Param::Param(Array value, detail::ParamInfoPtr info)
    : Array(detail::with_info(std::move(value), info)), info_(std::move(info)) {}

Param::Param(const Param& other) = default;
// What has been moved from keeps its path and annotation.
Param::Param(Param&& other) noexcept : Array(std::move(other)), info_(other.info_) {}
Param& Param::operator=(const Param& other) & = default;
Param& Param::operator=(Param&& other) & noexcept {
  Array::operator=(std::move(other));
  info_ = other.info_;
  return *this;
}
Param::~Param() = default;

const std::string& Param::path() const { return info_->path; }
const PartitionSpec& Param::spec() const { return info_->spec; }
bool Param::is_annotated() const { return info_->is_annotated; }
bool Param::is_logical() const { return info_->names == AxisNames::logical; }

bool Param::is_trained() const { return info_->is_trained; }

Param Param::with_value(Array value) const { return {std::move(value), info_}; }

Param Param::untrained() const {
  detail::ParamInfo info = *info_;
  info.is_trained = false;
  return {value(), detail::intern(std::move(info))};
}

Operand::Operand(const Array& value, std::source_location caller) : array(value), where(caller) {}

CallScope::CallScope(const std::source_location& where) : is_outermost_(trace::open_call(where)) {}
CallScope::~CallScope() {
  if (is_outermost_) trace::close_call();
}

}  // namespace tessera
