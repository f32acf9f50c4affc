// shard_map: maps a function of one device's tiles over axes of the mesh.
#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>
#include <tessera/transform.h>

#include "api/program.h"
#include "api/transform/nested.h"
#include "batch/batch.h"

namespace tessera::detail {

namespace {

using ir::Builder;
using ir::ValueId;
/// The mesh axes that a function is mapped over, in the order of the mesh.
using ManualAxes = std::vector<MeshAxis>;

std::string names_of(const ManualAxes& axes) {
  std::string text;
  for (const MeshAxis& axis : axes) text += (text.empty() ? "" : ", ") + axis.name;
  return text;
}

ManualAxes manual_axes(const Mesh& mesh, const std::vector<std::string>& names, const Span& where) {
  for (const std::string& name : names) {
    if (mesh.has_axis(name)) continue;
    throw UserError({.what = "shard_map: axis_names has an axis that the mesh does not have",
                     .where = where,
                     .found = "'" + name + "'",
                     .wanted = "axes of the mesh " + to_string(mesh),
                     .cure = "name axes of the mesh, or leave axis_names out to map over all"});
  }
  ManualAxes axes;
  for (const MeshAxis& axis : mesh.axes()) {
    const bool is_named = std::find(names.begin(), names.end(), axis.name) != names.end();
    if (!names.empty() && !is_named) continue;
    if (trace::is_mapped_mesh_axis(axis.name)) {
      throw UserError({.what = "shard_map: an axis is already mapped",
                       .where = where,
                       .found = "'" + axis.name + "' in a function that is mapped over " +
                                trace::mapped_axis_names(),
                       .wanted = "axes that no enclosing shard_map maps",
                       .cure = "give nested shard_maps different axis_names"});
    }
    axes.push_back(axis);
  }
  return axes;
}

/// The spec of one leaf of an argument or of the result.
struct LeafSpec {
  std::string subject;  // for errors: `argument 0/kernel`
  batch::TileSpec dims;
};

class ShardMap {
 public:
  ShardMap(const Mesh& mesh, const ShardMapOptions& options, const Span& where)
      : mesh_(mesh),
        options_(options),
        where_(where),
        axes_(manual_axes(mesh, options.axis_names, where)) {}

  Outcome run(Body& body) const;

 private:
  std::int64_t size_of(const std::string& axis) const { return mesh_.axis_size(axis); }
  LeafSpec spec_of(const Shardings& specs, const std::string& path, std::int64_t rank,
                   std::string subject) const;
  Type local_type(const Type& type, const LeafSpec& spec) const;
  void check_varies(const std::vector<bool>& varies, const LeafSpec& spec) const;
  void check_number(std::size_t num_arguments) const;

  const Mesh& mesh_;
  const ShardMapOptions& options_;
  const Span& where_;
  ManualAxes axes_;
};

LeafSpec ShardMap::spec_of(const Shardings& specs, const std::string& path, std::int64_t rank,
                           std::string subject) const {
  const Shardings::Entry* entry = specs.find(path);
  LeafSpec spec{.subject = std::move(subject), .dims = {}};
  spec.dims.resize(static_cast<std::size_t>(rank));
  if (entry == nullptr || !entry->is_specified) {
    throw UserError({.what = "shard_map: there is no spec for " + spec.subject,
                     .where = where_,
                     .found = "specs for other paths",
                     .wanted = "a spec for every argument and result",
                     .cure = "write P{} for an array that every device holds whole"});
  }
  check_spec(mesh_, entry->spec, "shard_map: " + spec.subject, where_);
  const std::vector<SpecEntry>& entries = entry->spec.entries();
  if (static_cast<std::int64_t>(entries.size()) > rank) {
    throw UserError(
        {.what = "shard_map: the spec of " + spec.subject + " is too long",
         .where = where_,
         .found = fmt::format("{} for an array of rank {}", to_string(entry->spec), rank),
         .wanted = fmt::format("at most {} entries", rank),
         .cure = "give one entry per dimension"});
  }
  for (std::size_t dim = 0; dim < entries.size(); ++dim) {
    for (const std::string& axis : entries[dim].axes) {
      const bool is_manual = std::any_of(axes_.begin(), axes_.end(),
                                         [&](const MeshAxis& one) { return one.name == axis; });
      if (!is_manual) {
        throw UserError(
            {.what = "shard_map: the spec of " + spec.subject + " names an axis that is not mapped",
             .where = where_,
             .found =
                 fmt::format("{} with axis_names = {}", to_string(entry->spec), names_of(axes_)),
             .wanted = "axes of axis_names",
             .cure = "add '" + axis + "' to axis_names, or leave it out of the spec"});
      }
    }
    spec.dims[dim] = entries[dim].axes;
  }
  return spec;
}

/// The type of the tile that one device has. Throws UserError if equal tiles are impossible.
Type ShardMap::local_type(const Type& type, const LeafSpec& spec) const {
  Type local = type;
  for (std::size_t dim = 0; dim < spec.dims.size(); ++dim) {
    std::int64_t count = 1;
    for (const std::string& axis : spec.dims[dim]) count *= size_of(axis);
    if (local.shape[dim] % count != 0) {
      throw UserError(
          {.what = fmt::format("shard_map: {} cannot be cut into equal tiles", spec.subject),
           .where = where_,
           .found = fmt::format("{}: {} elements along dimension {} over {} devices of {}",
                                to_string(type), local.shape[dim], dim, count, to_string(mesh_)),
           .wanted = fmt::format("a multiple of {}", count),
           .cure = "pad the array, or do without shard_map: jit can split uneven dimensions"});
    }
    local.shape[dim] /= count;
  }
  return local;
}

[[noreturn]] void fail_on_other_mesh(const Mesh& mesh, const Mesh& traced, const Span& where) {
  throw UserError({.what = "shard_map: the enclosing program is for another mesh",
                   .where = where,
                   .found = fmt::format("the mesh {} in a program for {}", to_string(mesh),
                                        traced.axes().empty() ? "one device" : to_string(traced)),
                   .wanted = "the same mesh for both",
                   .cure = "open `use_mesh scope(mesh);` before the call of the program, or place "
                           "its arguments on the mesh with device_put"});
}

/// Throws UserError if a result differs along an axis that its spec does not name.
void ShardMap::check_varies(const std::vector<bool>& varies, const LeafSpec& spec) const {
  if (!options_.check_vma) return;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (!varies[i] || batch::names_axis(spec.dims, axes_[i].name)) continue;
    throw UserError(
        {.what = fmt::format("shard_map: {} differs along axis '{}'", spec.subject, axes_[i].name),
         .where = where_,
         .found = "a spec in out_specs that does not name the axis",
         .wanted = "a result that is the same on all devices of the axis",
         .cure = fmt::format("name '{}' in out_specs, or combine the results with psum, pmean or "
                             "all_gather; .check_vma = false takes the result of the first device",
                             axes_[i].name)});
  }
}

void ShardMap::check_number(std::size_t num_arguments) const {
  if (options_.in_specs.size() == num_arguments) return;
  throw UserError(
      {.what = "shard_map: in_specs does not match the arguments",
       .where = where_,
       .found = fmt::format("{} specs for {} arguments", options_.in_specs.size(), num_arguments),
       .wanted = "one spec, or one Shardings for a tree, per argument",
       .cure = "write P{} for an argument that every device holds whole"});
}

Outcome ShardMap::run(Body& body) const {
  Walk arguments = body.walk_arguments(Walk::Want::paths);
  const std::vector<Array> leaves = leaves_of(arguments, where_);
  check_number(arguments.item_ends().size());
  Builder& b = builder_at(where_);
  std::vector<batch::TileSpec> specs;
  std::vector<Type> types;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::string& path = arguments.paths()[i];
    LeafSpec spec = spec_of(options_.in_specs[argument_number(arguments, i)], inner_path(path),
                            leaves[i].rank(), "argument " + path);
    types.push_back(local_type(leaves[i].type(), spec));
    specs.push_back(std::move(spec.dims));
  }
  const batch::TileMap map(mesh_, axes_, where_);
  std::vector<ValueId> values = lift_all(leaves, where_);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = map.stack(b, values[i], specs[i]);
  const trace::MappedAxes mapped(axes_, trace::MappedAxes::Kind::mesh);
  Nested nested = trace_nested(body, types, where_);
  for (ValueId id : lift_all(nested.captured, where_)) values.push_back(id);
  const batch::OverDevices all = map.over_devices(std::move(nested.function), specs);
  Outcome outcome{.result = nested.result, .leaves = {}};
  const std::vector<ValueId> outputs = b.inline_function(all.function, values);
  b.set_span(where_);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string& path = nested.result_paths[i];
    const LeafSpec spec = spec_of(options_.out_specs, path, nested.results[i].rank(),
                                  path.empty() ? "the result" : "result " + path);
    check_varies(all.varies[i], spec);
    outcome.leaves.push_back(as_arrays({map.unstack(b, outputs[i], all.varies[i], spec.dims)})[0]);
  }
  return outcome;
}

}  // namespace

Outcome map_over_mesh(Body& body, const ShardMapOptions& options,
                      const std::source_location& location) {
  const Span where = trace::call_span(location);
  MeshChoice choice(where);
  if (!options.mesh.axes().empty()) choice.add(options.mesh, "the mesh given to shard_map");
  if (trace::innermost() != nullptr) {
    const Mesh& traced = trace::innermost()->mesh();
    if (!(traced == choice.mesh())) fail_on_other_mesh(choice.mesh(), traced, where);
    return ShardMap(traced, options, where).run(body);
  }
  Outcome outcome;
  std::vector<Array> leaves = run_traced(choice.mesh(), [&] {
    outcome = ShardMap(choice.mesh(), options, where).run(body);
    return outcome.leaves;
  });
  outcome.leaves = std::move(leaves);
  return outcome;
}

}  // namespace tessera::detail
