#include <algorithm>
#include <charconv>
#include <numeric>

#include <tessera/error.h>
#include <tessera/mesh.h>

#include "base/suggest.h"
#include "mesh/sharding.h"
#include "mesh/suggest_axis.h"

namespace tessera {

namespace {

thread_local Mesh g_current_mesh;

std::string axis_list(const Mesh& mesh) {
  return mesh.axes().empty() ? "a mesh without axes" : "the mesh " + to_string(mesh);
}

std::string axis_names(const Mesh& mesh) {
  std::string text;
  for (const MeshAxis& axis : mesh.axes()) text += (text.empty() ? "" : ", ") + axis.name;
  return text.empty() ? "no axis names: the mesh has no axes" : "one of the axes " + text;
}

}  // namespace

std::string with_axis_suggestion(const Mesh& mesh, const std::string& wanted,
                                 const std::string& cure) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  return with_suggestion(wanted, names, cure);
}

TESSERA_DEFINE_COPYABLE(Mesh);
TESSERA_DEFINE_COPYABLE(SpecEntry);
TESSERA_DEFINE_COPYABLE(PartitionSpec);

void check_spec(const Mesh& mesh, const PartitionSpec& spec, const std::string& subject,
                const Span& where) {
  std::vector<std::string> seen;
  for (const SpecEntry& entry : spec.entries()) {
    for (const std::string& axis : entry.axes) {
      if (mesh.axes().empty()) {
        throw UserError(
            {.what = subject + ": there is no mesh for axis '" + axis + "'",
             .where = where,
             .found = to_string(spec) + " without a mesh",
             .wanted = "a mesh with this axis",
             .cure =
                 "put the arrays on a mesh, wrap the call in a use_mesh scope, or pass --mesh " +
                 axis + "=8"});
      }
      if (!mesh.has_axis(axis)) {
        throw UserError(
            {.what = subject + ": the mesh has no axis named '" + axis + "'",
             .where = where,
             .found = to_string(spec) + " on " + axis_list(mesh),
             .wanted = axis_names(mesh),
             .cure = with_axis_suggestion(mesh, axis,
                                          "name an axis of the mesh, or add this axis to "
                                          "make_mesh")});
      }
      if (std::find(seen.begin(), seen.end(), axis) != seen.end()) {
        throw UserError({.what = subject + ": axis '" + axis + "' is used twice",
                         .where = where,
                         .found = to_string(spec),
                         .wanted = "each mesh axis splits at most one dimension",
                         .cure = "keep '" + axis + "' on one dimension and write none elsewhere"});
      }
      seen.push_back(axis);
    }
  }
}

MpmdMesh::MpmdMesh(Mesh mesh, std::string axis, std::source_location where)
    : mesh_(std::move(mesh)), axis_(std::move(axis)) {
  if (!mesh_.has_axis(axis_)) {
    throw UserError({.what = "MpmdMesh: the mesh has no axis named '" + axis_ + "'",
                     .where = Span(where),
                     .found = axis_list(mesh_),
                     .wanted = axis_names(mesh_),
                     .cure = with_axis_suggestion(
                         mesh_, axis_, "name the axis along which the devices form groups")});
  }
  std::vector<MeshAxis> axes = mesh_.axes();
  for (MeshAxis& each : axes) {
    if (each.name == axis_) each.size = 1;
  }
  group_mesh_ = Mesh(std::move(axes), {}, where);
}

std::vector<Mesh> MpmdMesh::unstack() const {
  return std::vector<Mesh>(static_cast<std::size_t>(mpmd_dim()), group_mesh_);
}

std::string to_string(const MpmdMesh& mesh) {
  return "MpmdMesh(" + to_string(mesh.mesh()) + ", groups along '" + mesh.mpmd_axis_name() + "')";
}

namespace {

/// In texts, names are separated by braces, commas and equals signs.
bool is_axis_name(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

Mesh::Mesh() = default;

namespace {

/// Throws UserError unless the ids are 0 to n-1 in any order.
void check_ids(const Mesh& mesh, const std::vector<std::int64_t>& ids, const Span& where) {
  const std::int64_t count = mesh.num_devices();
  const std::string n = std::to_string(count);
  if (static_cast<std::int64_t>(ids.size()) != count) {
    throw UserError({.what = "make_mesh: the number of devices does not match the axes",
                     .where = where,
                     .found = std::to_string(ids.size()) + " device ids for " + to_string(mesh),
                     .wanted = n + " device ids, the product of the axis sizes",
                     .cure = "give one id per device of the mesh, row-major"});
  }
  std::vector<bool> is_taken(ids.size(), false);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t id = ids[i];
    const bool is_known = id >= 0 && id < count;
    if (is_known && !is_taken[static_cast<std::size_t>(id)]) {
      is_taken[static_cast<std::size_t>(id)] = true;
      continue;
    }
    throw UserError({.what = is_known
                                 ? "make_mesh: device " + std::to_string(id) + " is listed twice"
                                 : "make_mesh: there is no device " + std::to_string(id),
                     .where = where,
                     .found = "device " + std::to_string(id) + " at position " + std::to_string(i) +
                              " of " + to_string(mesh),
                     .wanted = "each of the devices 0 to " + std::to_string(count - 1) + " once",
                     .cure = "devices are virtual, one per position of the mesh: reorder 0 to " +
                             std::to_string(count - 1) + ", or leave the ids out"});
  }
}

std::vector<MeshAxis> named_axes(const DeviceMesh& devices, const std::vector<std::string>& names,
                                 const Span& where) {
  if (devices.shape.size() != names.size()) {
    throw UserError({.what = "Mesh: the number of axis names differs from the rank of the devices",
                     .where = where,
                     .found = std::to_string(names.size()) + " axis names for devices of shape " +
                              to_string(devices.shape),
                     .wanted = std::to_string(devices.shape.size()) + " axis names",
                     .cure = "name every dimension of the devices, outermost first"});
  }
  std::vector<MeshAxis> axes;
  for (std::size_t i = 0; i < names.size(); ++i) axes.push_back({names[i], devices.shape[i]});
  return axes;
}

}  // namespace

DeviceMesh create_device_mesh(Shape shape, std::source_location where) {
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size < 1; })) {
    throw UserError({.what = "create_device_mesh: a size is below 1",
                     .where = where,
                     .found = to_string(shape),
                     .wanted = "sizes of 1 or more",
                     .cure = "write for example create_device_mesh({2, 4})"});
  }
  DeviceMesh devices{.shape = std::move(shape), .ids = {}};
  devices.ids.resize(static_cast<std::size_t>(num_elements(devices.shape)));
  std::iota(devices.ids.begin(), devices.ids.end(), 0);
  return devices;
}

Mesh::Mesh(const DeviceMesh& devices, const std::vector<std::string>& axis_names,
           std::source_location where)
    : Mesh(named_axes(devices, axis_names, Span(where)), devices.ids, where) {
  if (devices.ids.empty()) check_ids(*this, devices.ids, Span(where));
}

Mesh::Mesh(std::vector<MeshAxis> axes, std::vector<std::int64_t> devices,
           std::source_location where)
    : axes_(std::move(axes)) {
  constexpr std::int64_t kMostDevices = 16384;
  std::int64_t num_devices = 1;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const MeshAxis& axis = axes_[i];
    if (!is_axis_name(axis.name) || axis.size < 1) {
      throw UserError({.what = "make_mesh: axis " + std::to_string(i) + " is not valid",
                       .where = where,
                       .found = "name '" + axis.name + "', size " + std::to_string(axis.size),
                       .wanted = "a name of letters, digits and _, and a size of at least 1",
                       .cure = "write for example make_mesh({{\"data\", 8}})"});
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (axes_[j].name == axis.name) {
        throw UserError({.what = "make_mesh: two axes are named '" + axis.name + "'",
                         .where = where,
                         .found = to_string(*this),
                         .wanted = "different names",
                         .cure = "give each mesh axis its own name"});
      }
    }
    if (axis.size > kMostDevices / num_devices) {
      throw UserError({.what = "make_mesh: the mesh has too many devices",
                       .where = where,
                       .found = to_string(*this),
                       .wanted = "at most " + std::to_string(kMostDevices) + " devices",
                       .cure = "make an axis smaller"});
    }
    num_devices *= axis.size;
  }
  if (devices.empty()) return;
  check_ids(*this, devices, Span(where));
  if (!std::is_sorted(devices.begin(), devices.end())) ids_ = std::move(devices);
}

std::vector<std::int64_t> Mesh::device_ids() const {
  if (!ids_.empty()) return ids_;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(num_devices()));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::int64_t Mesh::position_of(std::int64_t device, std::source_location where) const {
  if (device < 0 || device >= num_devices()) {
    throw UserError({.what = "the mesh has no device " + std::to_string(device),
                     .where = where,
                     .found = axis_list(*this),
                     .wanted = "a device from 0 to " + std::to_string(num_devices() - 1),
                     .cure = "take ids from the mesh: mesh.device_ids()"});
  }
  if (ids_.empty()) return device;
  return std::find(ids_.begin(), ids_.end(), device) - ids_.begin();
}

std::int64_t Mesh::num_devices() const {
  std::int64_t count = 1;
  for (const MeshAxis& axis : axes_) count *= axis.size;
  return count;
}

bool Mesh::has_axis(const std::string& name) const {
  return std::any_of(axes_.begin(), axes_.end(),
                     [&](const MeshAxis& axis) { return axis.name == name; });
}

std::int64_t Mesh::axis_size(const std::string& name, std::source_location where) const {
  for (const MeshAxis& axis : axes_) {
    if (axis.name == name) return axis.size;
  }
  throw UserError({.what = "axis_size: the mesh has no axis named '" + name + "'",
                   .where = where,
                   .found = axis_list(*this),
                   .wanted = axis_names(*this),
                   .cure = with_axis_suggestion(*this, name, "name an axis of the mesh")});
}

Mesh make_mesh(std::vector<MeshAxis> axes, std::vector<std::int64_t> devices,
               std::source_location where) {
  return Mesh(std::move(axes), std::move(devices), where);
}

std::string to_string(const Mesh& mesh) {
  if (mesh.axes().empty()) return "none";
  std::string text;
  for (const MeshAxis& axis : mesh.axes()) {
    if (!text.empty()) text += ',';
    text += axis.name + "=" + std::to_string(axis.size);
  }
  if (mesh.is_in_order()) return text;
  char before = '@';
  for (const std::int64_t id : mesh.device_ids()) {
    text += before + std::to_string(id);
    before = ',';
  }
  return text;
}

namespace {

/// The numbers of `4,0,1`; throws UserError.
std::vector<std::int64_t> parse_ids(const std::string& text, const std::string& mesh,
                                    const Span& where) {
  std::vector<std::int64_t> ids;
  for (const char *at = text.data(), *last = at + text.size(); true; ++at) {
    std::int64_t id = 0;
    const char* end = std::from_chars(at, last, id).ptr;
    if (end == at || (end != last && *end != ',')) {
      throw UserError({.what = "mesh: the device ids cannot be read",
                       .where = where,
                       .found = "'" + mesh + "'",
                       .wanted = "numbers separated by commas after the @",
                       .cure = "write for example data=4@0,2,3,1"});
    }
    ids.push_back(id);
    at = end;
    if (at == last) return ids;
  }
}

}  // namespace

Mesh parse_mesh(const std::string& whole, std::source_location where) {
  if (whole == "none") return Mesh();
  const std::size_t at = std::min(whole.find('@'), whole.size());
  const std::string text = whole.substr(0, at);
  std::vector<MeshAxis> axes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const std::size_t equals = item.find('=');
    std::int64_t size = 0;
    const char* last = item.data() + item.size();
    const bool readable = equals != std::string::npos && equals > 0 &&
                          std::from_chars(item.data() + equals + 1, last, size).ptr == last &&
                          size >= 1;
    if (!readable) {
      throw UserError(
          {.what = "mesh: '" + item + "' is not an axis",
           .where = Span(where),
           .found = "'" + whole + "'",
           .wanted = "none, or axis=size pairs separated by commas, with sizes of 1 or more",
           .cure = "write for example data=4,model=2"});
    }
    axes.push_back({item.substr(0, equals), size});
    if (!is_axis_name(axes.back().name)) {
      throw UserError({.what = "mesh: '" + axes.back().name + "' is not the name of an axis",
                       .where = Span(where),
                       .found = "'" + whole + "'",
                       .wanted = "names of letters, digits and _",
                       .cure = "write for example data=4,model=2"});
    }
    begin = end + 1;
  }
  std::vector<std::int64_t> ids;
  if (at < whole.size()) ids = parse_ids(whole.substr(at + 1), whole, Span(where));
  return Mesh(std::move(axes), std::move(ids), where);
}

std::string to_string(const SpecEntry& entry) {
  if (entry.axes.empty()) return entry.is_unconstrained ? "UNCONSTRAINED" : "None";
  std::string text;
  for (const std::string& axis : entry.axes) text += (text.empty() ? "'" : ", '") + axis + "'";
  return entry.axes.size() == 1 ? text : "(" + text + ")";
}

std::string to_string(const PartitionSpec& spec) {
  std::string text;
  for (const SpecEntry& entry : spec.entries()) {
    text += (text.empty() ? "" : ", ") + to_string(entry);
  }
  return "P(" + text + (spec.entries().size() == 1 ? ",)" : ")");
}

SpecEntry::SpecEntry(None) {}
SpecEntry::SpecEntry(Unconstrained) : is_unconstrained(true) {}
SpecEntry::SpecEntry(const char* axis) : axes{axis} {}
SpecEntry::SpecEntry(std::string axis) : axes{std::move(axis)} {}
SpecEntry::SpecEntry(std::initializer_list<const char*> axis_names)
    : axes(axis_names.begin(), axis_names.end()) {}

PartitionSpec::PartitionSpec() = default;
PartitionSpec::PartitionSpec(std::initializer_list<SpecEntry> entries) : entries_(entries) {}
PartitionSpec::PartitionSpec(std::vector<SpecEntry> entries) : entries_(std::move(entries)) {}

use_mesh::use_mesh(Mesh mesh) : previous_(g_current_mesh) { g_current_mesh = std::move(mesh); }
use_mesh::~use_mesh() { g_current_mesh = std::move(previous_); }
const Mesh& current_mesh() { return g_current_mesh; }

}  // namespace tessera
