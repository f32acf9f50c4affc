// shard_map: maps a function of one device's tiles over axes of the mesh. Each argument gets one
// leading dimension per axis of its spec, which is split over that axis. So each device computes
// the function for its own tiles, and collectives in the function move data along these dimensions.
#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>
#include <tessera/transform.h>

#include "api/program.h"
#include "api/transform/nested.h"
#include "batch/batch.h"
#include "ops/emit.h"

namespace tessera::detail {

namespace {

using ir::Builder;
using ir::Ints;
using ir::ValueId;
using Marks = std::vector<bool>;

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
  std::string subject;                         // for errors: `argument 0/kernel`
  std::vector<std::vector<std::string>> dims;  // per dimension the axes that split it, major first

  bool names(const std::string& axis) const {
    return std::any_of(dims.begin(), dims.end(), [&](const auto& dim) {
      return std::find(dim.begin(), dim.end(), axis) != dim.end();
    });
  }
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
  ValueId stack(Builder& b, ValueId x, const Type& local, const LeafSpec& spec) const;
  ValueId unstack(Builder& b, ValueId x, const Marks& varies, const LeafSpec& spec) const;
  ValueId with_axis(Builder& b, ValueId x, std::size_t at, bool varies, bool is_named,
                    const MeshAxis& axis, const LeafSpec& spec) const;
  ValueId placed(Builder& b, ValueId x, std::vector<std::vector<std::string>> dims,
                 std::size_t first_open) const;
  ops::BatchAxis batch_axis(const MeshAxis& axis) const;
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

/// A sharding constraint that splits dimensions over the mapped axes `dims`. Dimensions from
/// `first_open` on may be split over the other axes as well.
ValueId ShardMap::placed(Builder& b, ValueId x, std::vector<std::vector<std::string>> dims,
                         std::size_t first_open) const {
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

/// The argument with one leading dimension for each axis of the spec, in the order of the mesh,
/// followed by the dimensions of a tile.
ValueId ShardMap::stack(Builder& b, ValueId x, const Type& local, const LeafSpec& spec) const {
  Ints sizes;
  Ints local_dims;
  std::vector<std::pair<std::string, std::int64_t>> axis_dims;
  for (std::size_t dim = 0; dim < spec.dims.size(); ++dim) {
    for (const std::string& axis : spec.dims[dim]) {
      axis_dims.emplace_back(axis, static_cast<std::int64_t>(sizes.size()));
      sizes.push_back(size_of(axis));
    }
    local_dims.push_back(static_cast<std::int64_t>(sizes.size()));
    sizes.push_back(local.shape[dim]);
  }
  Ints permutation;
  std::vector<std::vector<std::string>> dims;
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
ValueId ShardMap::with_axis(Builder& b, ValueId x, std::size_t at, bool varies, bool is_named,
                            const MeshAxis& axis, const LeafSpec& spec) const {
  if (varies == is_named) return x;
  const auto dim = static_cast<std::int64_t>(at);
  Shape shape = b.type(x).shape;
  if (is_named) {
    shape.insert(shape.begin() + dim, axis.size);
    return ops::expand_dims(b, x, {dim}, shape);
  }
  if (options_.check_vma) {
    throw UserError(
        {.what = fmt::format("shard_map: {} differs along axis '{}'", spec.subject, axis.name),
         .where = where_,
         .found = "a spec in out_specs that does not name the axis",
         .wanted = "a result that is the same on all devices of the axis",
         .cure = fmt::format("name '{}' in out_specs, or combine the result: psum, "
                             "pmean, all_gather; with .check_vma = false the first "
                             "device's result is taken",
                             axis.name)});
  }
  shape.erase(shape.begin() + dim);
  return ops::reshape(b, ops::slice_dim(b, x, dim, 0, 1), std::move(shape));
}

ValueId ShardMap::unstack(Builder& b, ValueId x, const Marks& varies, const LeafSpec& spec) const {
  std::vector<std::string> leading;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const bool is_named = spec.names(axes_[i].name);
    x = with_axis(b, x, leading.size(), varies[i], is_named, axes_[i], spec);
    if (is_named) leading.push_back(axes_[i].name);
  }
  const Shape stacked = b.type(x).shape;
  Ints permutation;
  Shape shape;
  for (std::size_t dim = 0; dim < spec.dims.size(); ++dim) {
    const auto local = static_cast<std::int64_t>(leading.size() + dim);
    std::int64_t size = stacked[static_cast<std::size_t>(local)];
    for (const std::string& axis : spec.dims[dim]) {
      permutation.push_back(std::find(leading.begin(), leading.end(), axis) - leading.begin());
      size *= size_of(axis);
    }
    permutation.push_back(local);
    shape.push_back(size);
  }
  const ValueId whole = ops::reshape(b, ops::transpose(b, x, std::move(permutation)), shape);
  return placed(b, whole, spec.dims, 0);
}

[[noreturn]] void fail_on_other_mesh(const Mesh& mesh, const Mesh& traced, const Span& where) {
  throw UserError({.what = "shard_map: the enclosing program is for another mesh",
                   .where = where,
                   .found = fmt::format("the mesh {} in a program for {}", to_string(mesh),
                                        traced.axes().empty() ? "one device" : to_string(traced)),
                   .wanted = "one mesh",
                   .cure = "open `use_mesh scope(mesh);` before the call of the program, or place "
                           "its arguments on the mesh with device_put"});
}

ops::BatchAxis ShardMap::batch_axis(const MeshAxis& axis) const {
  const Type along{.dtype = DType::f32, .shape = {axis.size}};
  const Sharding split = to_sharding(mesh_, PartitionSpec{axis.name}, along, "shard_map", where_);
  return {
      .name = axis.name, .atoms = split.dims[0], .is_manual = axes_.size() == mesh_.axes().size()};
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
  std::vector<LeafSpec> specs;
  std::vector<Type> types;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::string& path = arguments.paths()[i];
    specs.push_back(spec_of(options_.in_specs[argument_number(arguments, i)], inner_path(path),
                            leaves[i].rank(), "argument " + path));
    types.push_back(local_type(leaves[i].type(), specs[i]));
  }
  std::vector<ValueId> values = lift_all(leaves, where_);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = stack(b, values[i], types[i], specs[i]);
  const trace::MappedAxes mapped(axes_, trace::MappedAxes::Kind::mesh);
  Nested nested = trace_nested(body, types, where_);
  for (ValueId id : lift_all(nested.captured, where_)) values.push_back(id);
  ir::Function function = std::move(nested.function);
  std::vector<Marks> varies(function.outputs.size(), Marks(axes_.size()));
  for (std::size_t axis = axes_.size(); axis-- > 0;) {
    Marks inputs(values.size(), false);
    for (std::size_t i = 0; i < specs.size(); ++i) inputs[i] = specs[i].names(axes_[axis].name);
    batch::Batched batched =
        batch::batch(function, inputs, axes_[axis].size, {}, batch_axis(axes_[axis]));
    function = std::move(batched.function);
    for (std::size_t i = 0; i < varies.size(); ++i) varies[i][axis] = batched.is_output_batched[i];
  }
  Outcome outcome{.result = nested.result, .leaves = {}};
  const std::vector<ValueId> outputs = b.inline_function(function, values);
  b.set_span(where_);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string& path = nested.result_paths[i];
    const LeafSpec spec = spec_of(options_.out_specs, path, nested.results[i].rank(),
                                  path.empty() ? "the result" : "result " + path);
    outcome.leaves.push_back(as_arrays({unstack(b, outputs[i], varies[i], spec)})[0]);
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
