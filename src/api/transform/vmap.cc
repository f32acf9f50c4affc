// vmap: turns the calls of a function for the examples of a batch into one traced computation.
#include <fmt/format.h>
#include <optional>

#include <tessera/error.h>
#include <tessera/transform.h>

#include "api/program.h"
#include "api/transform/nested.h"
#include "batch/batch.h"
#include "ops/rules.h"

namespace tessera::detail {

namespace {

std::string text_of(const BatchAxis& axis) {
  return axis.is_mapped ? std::to_string(axis.value) : "none";
}

std::string text_of(const BatchAxes& in_axes) {
  std::string text;
  for (const BatchAxis& axis : in_axes.axes) text += (text.empty() ? "" : ", ") + text_of(axis);
  return in_axes.is_list ? "{" + text + "}" : text;
}

/// `axis` as a dimension of an array of rank `rank`; nullopt if it is out of range.
std::optional<std::int64_t> dim_of(const BatchAxis& axis, std::int64_t rank) {
  const std::int64_t dim = axis.value < 0 ? axis.value + rank : axis.value;
  if (dim < 0 || dim >= rank) return std::nullopt;
  return dim;
}

[[noreturn]] void fail_without_axis(const std::string& subject, const Type& type,
                                    const std::string& option, const Span& where) {
  throw UserError({.what = fmt::format("vmap: {} has no such axis", subject),
                   .where = where,
                   .found = fmt::format("{}, {}", to_string(type), option),
                   .wanted = type.rank() == 0 ? "an array of rank 1 or more"
                                              : fmt::format("an axis from {} to {}", -type.rank(),
                                                            type.rank() - 1),
                   .cure = "count axes from 0, or from the end with negative numbers; write none "
                           "for what all elements share"});
}

/// Which dimension of each leaf is the batch dimension, and the size of the batch.
class Mapping {
 public:
  Mapping(Walk& arguments, const BatchAxes& in_axes, const Span& where)
      : arguments_(arguments), in_axes_(in_axes), where_(where) {
    check_number();
    for (std::size_t i = 0; i < arguments_.leaves().size(); ++i) {
      const BatchAxis& axis = axis_of(i);
      dims_.push_back(axis.is_mapped ? std::optional(mapped_dim(i, axis)) : std::nullopt);
    }
    if (!first_) fail_without_mapped();
  }

  std::optional<std::int64_t> dim(std::size_t leaf) const { return dims_[leaf]; }
  std::int64_t size() const { return size_; }

 private:
  std::size_t num_arguments() const {
    return arguments_.leaves().empty() ? 0 : arguments_.item_ends().size();
  }

  void check_number() const {
    if (!in_axes_.is_list || in_axes_.axes.size() == arguments_.item_ends().size()) return;
    throw UserError(
        {.what = "vmap: in_axes does not match the arguments",
         .where = where_,
         .found = fmt::format("in_axes = {} for {} arguments", text_of(in_axes_), num_arguments()),
         .wanted = "one entry per argument, or one number for all of them",
         .cure = "write none for arguments that all elements share"});
  }

  const BatchAxis& axis_of(std::size_t leaf) const {
    if (!in_axes_.is_list) return in_axes_.axes[0];
    return in_axes_.axes[argument_number(arguments_, leaf)];
  }

  const Type& type_of(std::size_t leaf) const {
    return node_of(*arguments_.leaves()[leaf].array, where_)->type;
  }

  std::int64_t mapped_dim(std::size_t leaf, const BatchAxis& axis) {
    const std::optional<std::int64_t> dim = dim_of(axis, type_of(leaf).rank());
    if (!dim) {
      fail_without_axis("argument " + arguments_.paths()[leaf], type_of(leaf),
                        "in_axes = " + text_of(in_axes_), where_);
    }
    const std::int64_t size = type_of(leaf).shape[ops::at(*dim)];
    if (!first_) {
      first_ = leaf;
      size_ = size;
    }
    if (size != size_) fail_with_sizes(leaf, *dim, size);
    return *dim;
  }

  [[noreturn]] void fail_with_sizes(std::size_t leaf, std::int64_t dim, std::int64_t size) {
    const std::vector<std::string>& paths = arguments_.paths();
    throw UserError(
        {.what = "vmap: the batches of the arguments have different sizes",
         .where = where_,
         .found = fmt::format("argument {}: {} has {} along axis {}; argument {}: {} has {} along "
                              "axis {}",
                              paths[*first_], to_string(type_of(*first_)), size_, *dims_[*first_],
                              paths[leaf], to_string(type_of(leaf)), size, dim),
         .wanted = "the same size along all mapped axes",
         .cure = fmt::format("if all elements share argument {}, write none for it in in_axes; "
                             "otherwise pass batches of one size, or name the axis of the batch",
                             paths[leaf])});
  }

  [[noreturn]] void fail_without_mapped() const {
    throw UserError(
        {.what = "vmap: no argument is mapped",
         .where = where_,
         .found = fmt::format("in_axes = {} for {} leaves of {} arguments", text_of(in_axes_),
                              arguments_.leaves().size(), num_arguments()),
         .wanted = "an axis for at least one array",
         .cure = "give an argument its axis, for example {.in_axes = {0, none}}; captured arrays "
                 "are never mapped"});
  }

  Walk& arguments_;
  const BatchAxes& in_axes_;
  const Span& where_;
  std::vector<std::optional<std::int64_t>> dims_;
  std::optional<std::size_t> first_;  // the first mapped leaf
  std::int64_t size_ = 0;
};

/// Moves the batch dimension of a result from the front to the position that `out_axis` asks for.
ir::ValueId place_batch(ir::Builder& b, ir::ValueId x, const BatchAxis& out_axis,
                        const Span& where) {
  const std::optional<std::int64_t> dim = dim_of(out_axis, b.type(x).rank());
  if (!dim) {
    fail_without_axis("a result", b.type(x), "out_axes = " + text_of(out_axis), where);
  }
  ir::Ints permutation;
  for (std::int64_t i = 1; i < b.type(x).rank(); ++i) permutation.push_back(i);
  permutation.insert(permutation.begin() + *dim, 0);
  return ops::transpose(b, x, std::move(permutation));
}

void check_unmapped(const batch::Batched& batched, const Span& where) {
  for (std::size_t i = 0; i < batched.is_output_batched.size(); ++i) {
    if (!batched.is_output_batched[i]) continue;
    throw UserError({.what = "vmap: a result differs from element to element",
                     .where = where,
                     .found = fmt::format("out_axes = none, but leaf {} of the result depends on a "
                                          "mapped argument",
                                          i),
                     .wanted = "results that are the same for all elements",
                     .cure = "give the axis of the batch, {.out_axes = 0}"});
  }
}

/// Batches within the innermost trace.
Outcome map_traced(const Walk& arguments, const Mapping& mapping, Body& body,
                   const VmapOptions& options, const Span& where) {
  ir::Builder& b = builder_at(where);
  std::vector<ir::ValueId> values = lift_all(leaves_of(arguments, where), where);
  std::vector<Type> types;
  std::vector<bool> is_batched;
  Sights sights{.level = VmapLevel{.size = mapping.size(), .axis = options.axis_name}};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::optional<std::int64_t> dim = mapping.dim(i);
    if (dim) values[i] = ops::move_to_front(b, values[i], *dim);
    types.push_back(b.type(values[i]));
    if (dim) types.back().shape.erase(types.back().shape.begin());
    is_batched.push_back(dim.has_value());
    const std::vector<Array> outer = as_arrays({values[i]});
    sights.inputs.push_back(dim ? rows_of(outer[0]) : looks_at(outer)[0]);
  }
  std::vector<MeshAxis> axes;
  if (!options.axis_name.empty()) axes.push_back({options.axis_name, mapping.size()});
  const trace::MappedAxes mapped(std::move(axes), trace::MappedAxes::Kind::batch);
  Nested nested = trace_nested(body, types, where, std::move(sights));
  for (ir::ValueId id : lift_all(nested.captured, where)) {
    values.push_back(id);
    is_batched.push_back(false);
  }
  const std::vector<bool> must_be_batched(nested.results.size(), options.out_axes.is_mapped);
  const batch::Batched batched = batch::batch(nested.function, is_batched, mapping.size(),
                                              must_be_batched, {.name = options.axis_name});
  if (!options.out_axes.is_mapped) check_unmapped(batched, where);
  Outcome outcome{.result = nested.result, .leaves = {}};
  for (ir::ValueId id : b.inline_function(batched.function, values)) {
    b.set_span(where);
    if (options.out_axes.is_mapped) id = place_batch(b, id, options.out_axes, where);
    outcome.leaves.push_back(as_arrays({id})[0]);
  }
  return outcome;
}

}  // namespace

Outcome map_over_batch(Body& body, const VmapOptions& options, const std::source_location& where) {
  const Span span(where);
  Walk arguments = body.walk_arguments(Walk::Want::paths);
  const Mapping mapping(arguments, options.in_axes, span);
  if (trace::innermost() != nullptr) return map_traced(arguments, mapping, body, options, span);
  MeshChoice choice(span);
  for (const Walk::Leaf& leaf : arguments.leaves()) {
    const ArrayNode& node = *leaf.array->node();
    if (node.is_concrete()) choice.add(node.placement->mesh, describe(*leaf.array));
  }
  const use_mesh scope(choice.mesh());
  Outcome outcome;
  std::vector<Array> leaves = run_traced(choice.mesh(), [&] {
    outcome = map_traced(arguments, mapping, body, options, span);
    return outcome.leaves;
  });
  outcome.leaves = std::move(leaves);
  return outcome;
}

}  // namespace tessera::detail
