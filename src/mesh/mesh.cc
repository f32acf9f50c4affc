#include <algorithm>
#include <charconv>

#include <tessera/error.h>
#include <tessera/mesh.h>

#include "mesh/sharding.h"

namespace tessera {

namespace {

thread_local Mesh g_current_mesh;

std::string axis_list(const Mesh& mesh) {
  return mesh.axes().empty() ? "a mesh without axes" : "the mesh " + to_string(mesh);
}

std::string axis_names(const Mesh& mesh) {
  std::string text;
  for (const MeshAxis& axis : mesh.axes()) text += (text.empty() ? "" : ", ") + axis.name;
  return text.empty() ? "no axis: every entry none" : "one of the axes " + text;
}

}  // namespace

TESSERA_DEFINE_COPYABLE(Mesh);
TESSERA_DEFINE_COPYABLE(SpecEntry);
TESSERA_DEFINE_COPYABLE(PartitionSpec);

void check_spec(const Mesh& mesh, const PartitionSpec& spec, const std::string& subject,
                const Span& where) {
  std::vector<std::string> seen;
  for (const SpecEntry& entry : spec.entries()) {
    for (const std::string& axis : entry.axes) {
      if (!mesh.has_axis(axis)) {
        throw UserError({.what = subject + ": the mesh has no axis named '" + axis + "'",
                         .where = where,
                         .found = to_string(spec) + " on " + axis_list(mesh),
                         .wanted = axis_names(mesh),
                         .cure = "name an axis of the mesh, or add this axis to make_mesh"});
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

namespace {

/// Names stand in texts between braces, commas and equals signs.
bool is_axis_name(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

Mesh::Mesh() = default;

Mesh::Mesh(std::vector<MeshAxis> axes, std::source_location where) : axes_(std::move(axes)) {
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
                   .cure = "name an axis of the mesh"});
}

Mesh make_mesh(std::vector<MeshAxis> axes, std::source_location where) {
  return Mesh(std::move(axes), where);
}

std::string to_string(const Mesh& mesh) {
  if (mesh.axes().empty()) return "none";
  std::string text;
  for (const MeshAxis& axis : mesh.axes()) {
    if (!text.empty()) text += ',';
    text += axis.name + "=" + std::to_string(axis.size);
  }
  return text;
}

Mesh parse_mesh(const std::string& text) {
  if (text == "none") return Mesh();
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
      throw UserError({.what = "mesh: '" + item + "' is not an axis",
                       .found = "'" + text + "'",
                       .wanted = "axis=size pairs separated by commas with sizes of 1 or more, or "
                                 "none",
                       .cure = "write for example data=4,model=2"});
    }
    axes.push_back({item.substr(0, equals), size});
    begin = end + 1;
  }
  return Mesh(std::move(axes), std::source_location());
}

std::string to_string(const PartitionSpec& spec) {
  std::string text = "P(";
  for (std::size_t i = 0; i < spec.entries().size(); ++i) {
    const std::vector<std::string>& axes = spec.entries()[i].axes;
    if (i > 0) text += ", ";
    if (axes.empty()) text += "None";
    if (axes.size() == 1) text += "'" + axes[0] + "'";
    if (axes.size() > 1) {
      text += "(";
      for (std::size_t j = 0; j < axes.size(); ++j) {
        text += (j > 0 ? ", '" : "'") + axes[j] + "'";
      }
      text += ")";
    }
  }
  return text + ")";
}

SpecEntry::SpecEntry(None) {}
SpecEntry::SpecEntry(const char* axis) : axes{axis} {}
SpecEntry::SpecEntry(std::string axis) : axes{std::move(axis)} {}
SpecEntry::SpecEntry(std::initializer_list<const char*> axis_names)
    : axes(axis_names.begin(), axis_names.end()) {}

PartitionSpec::PartitionSpec() = default;
PartitionSpec::PartitionSpec(std::initializer_list<SpecEntry> entries) : entries_(entries) {}
PartitionSpec::PartitionSpec(std::vector<SpecEntry> entries) : entries_(std::move(entries)) {}

NamedSharding::NamedSharding(Mesh on, PartitionSpec entries, std::source_location where)
    : mesh(std::move(on)), spec(std::move(entries)) {
  check_spec(mesh, spec, "NamedSharding", Span(where));
}

use_mesh::use_mesh(Mesh mesh) : previous_(g_current_mesh) { g_current_mesh = std::move(mesh); }
use_mesh::~use_mesh() { g_current_mesh = std::move(previous_); }
const Mesh& current_mesh() { return g_current_mesh; }

}  // namespace tessera
