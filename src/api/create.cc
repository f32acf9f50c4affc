// Making, placing and comparing arrays.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include <tessera/error.h>
#include <tessera/ops.h>

#include "api/inspect/watch.h"
#include "api/operands.h"
#include "run/world.h"

namespace tessera {

using detail::emit;
using detail::public_op;

namespace detail {

Array array_from(DType dtype, Shape shape, const void* elements, std::size_t count,
                 const std::source_location& where) {
  const bool is_negative =
      std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size < 0; });
  if (is_negative || num_elements(shape) != static_cast<std::int64_t>(count)) {
    throw UserError({.what = "array: the number of elements does not match the shape",
                     .where = trace::call_span(where),
                     .found = fmt::format("{} elements for {}", count, to_string(shape)),
                     .wanted = is_negative ? std::string("sizes of 0 or more")
                                           : fmt::format("{} elements", num_elements(shape)),
                     .cure = "pass a shape whose sizes multiply to the number of elements"});
  }
  ops::HostArray host({dtype, std::move(shape)});
  if (count > 0) std::memcpy(host.bytes().data(), elements, host.bytes().size());
  PlacementPtr placement = replicated_placement(host.type(), current_mesh());
  return make_concrete(placement, scatter(host, *placement));
}

Array array_from(const std::vector<bool>& elements, Shape shape,
                 const std::source_location& where) {
  const std::vector<std::uint8_t> bytes(elements.begin(), elements.end());
  return array_from(DType::boolean, std::move(shape), bytes.data(), bytes.size(), where);
}

}  // namespace detail

Scalar::Scalar(const Operand& value)
    : Array(public_op(value.where, [&] {
        const auto element = [&](auto number) {
          return detail::array_from(dtype_of<decltype(number)>, {}, &number, 1, value.where);
        };
        if (trace::innermost() == nullptr) {
          if (value.kind == Operand::Kind::real) return element(static_cast<float>(value.real));
          if (value.kind == Operand::Kind::boolean) return element(value.integer != 0);
          const auto integer = static_cast<std::int32_t>(value.integer);
          if (value.is_number() && integer == value.real) return element(integer);
        }
        const Array number = detail::as_array("Scalar", value);
        if (number.rank() == 0) return number;
        detail::fail("Scalar", "the array has dimensions", detail::describe(number),
                     "an array of rank 0", "take one element of it, or declare an Array");
      })) {}

Array full(Shape shape, Operand value, DType dtype) {
  return public_op(value.where, [&] {
    detail::check_sizes("full", shape);
    if (value.is_number()) {
      return detail::broadcast(detail::as_array("full", value, dtype), shape);
    }
    return broadcast_to(astype(value, dtype), shape);
  });
}

Array zeros(Shape shape, DType dtype, std::source_location where) {
  return public_op(where, [&] {
    detail::check_sizes("zeros", shape);
    return detail::filled(0.0, {dtype, shape});
  });
}

Array ones(Shape shape, DType dtype, std::source_location where) {
  return public_op(where, [&] {
    detail::check_sizes("ones", shape);
    return detail::filled(1.0, {dtype, shape});
  });
}

Array zeros_like(const Array& like, std::source_location where) {
  return zeros(like.shape(), like.dtype(), where);
}

Array ones_like(const Array& like, std::source_location where) {
  return ones(like.shape(), like.dtype(), where);
}

Array full_like(const Array& like, Operand value) {
  return full(like.shape(value.where), value, like.dtype(value.where));
}

Array arange(std::int64_t limit, DType dtype, std::source_location where) {
  return iota({std::max<std::int64_t>(limit, 0)}, 0, dtype, where);
}

Array arange(std::int64_t start, std::int64_t limit, std::int64_t step, DType dtype,
             std::source_location where) {
  return public_op(where, [&] {
    if (step == 0) {
      detail::fail("arange", "the step is 0", "0", "a step other than 0",
                   "use full() for a constant");
    }
    const std::int64_t sign = step > 0 ? 1 : -1;
    const std::int64_t count = ((limit - start) * sign + (step * sign - 1)) / (step * sign);
    const Array index = iota({std::max<std::int64_t>(count, 0)}, 0, dtype);
    return index * step + start;
  });
}

namespace {

/// While tracing: x with a constraint to `sharding`, on the mesh of the trace.
Array constrained(const Array& x, const Sharding& sharding) {
  return emit("sharding_constraint", {x}, {{"sharding", sharding}});
}

void check_mesh_of_trace(const Mesh& mesh, const char* subject) {
  const Mesh& traced = trace::innermost()->mesh();
  if (traced.axes().empty() || traced == mesh) return;
  detail::fail(subject, "the sharding is for another mesh", to_string(mesh), to_string(traced),
               "use the mesh of the surrounding function: with_sharding_constraint(x, P{...})");
}

/// The whole program is for one mesh, so a scope that the traced function opens has no effect.
void check_scope_in_trace(const char* op) {
  const Mesh& traced = trace::innermost()->mesh();
  const Mesh& scope = current_mesh();
  if (scope.axes().empty() || scope == traced) return;
  detail::fail(op, "a use_mesh scope within the traced function is for another mesh",
               to_string(scope),
               traced.axes().empty() ? "no mesh, as outside of the function" : to_string(traced),
               "open the use_mesh scope before the function is called");
}

/// Inside of shard_map an array is the tile of one device, so a mapped axis cannot split it.
void check_is_not_mapped(const PartitionSpec& spec, const char* op) {
  for (const SpecEntry& entry : spec.entries()) {
    for (const std::string& axis : entry.axes) {
      if (!trace::is_mapped_mesh_axis(axis)) continue;
      detail::fail(
          op, "shard_map already maps the axis '" + axis + "'",
          to_string(spec) + " in a function that is mapped over " + trace::mapped_axis_names(),
          "axes that shard_map does not map",
          "leave '" + axis + "' out: within shard_map the array is already the tile of one device");
    }
  }
}

/// `device_put of Dense_0/kernel`.
std::string subject_of(const char* op, const Array& x) {
  const detail::ParamInfo* info = x.node()->info.get();
  return info == nullptr || info->path.empty() ? op : std::string(op) + " of " + info->path;
}

Array placed(const Array& x, const Mesh& mesh, const Sharding& sharding, const char* op,
             const Span& where) {
  const detail::Tiled from = detail::tiles_of(x, where);
  detail::PlacementPtr to = detail::placement_of(x.type(), mesh, sharding);
  if (from.placement == to) return x;
  detail::Tiled there = detail::move_tiles(from, to, op, where);
  Array moved = detail::make_concrete(to, std::move(there.tiles), std::move(there.groups));
  moved.node()->info = x.node()->info;
  return moved;
}

/// The array held by these groups only; if nullptr, by those that hold it already.
Array held_by(const Array& x, const detail::HolderGroups& groups, const Span& where) {
  const detail::NodePtr& node = x.node();
  if (groups == nullptr || (node->groups != nullptr && *node->groups == *groups)) return x;
  detail::Tiled there = detail::bring(detail::tiles_of(x, where), groups, "device_put", where);
  Array moved = detail::make_concrete(there.placement, std::move(there.tiles), groups);
  moved.node()->info = node->info;
  return moved;
}

/// `asked` without open dimensions: these keep their current atoms, up to the first atom that
/// another dimension uses.
Sharding closed(Sharding asked, const Sharding& current) {
  for (const std::size_t dim : std::exchange(asked.open, {})) {
    for (const AtomId atom : current.dims[dim]) {
      const AtomList used = used_atoms(asked);
      if (std::find(used.begin(), used.end(), atom) != used.end()) break;
      asked.dims[dim].push_back(atom);
    }
  }
  return asked;
}

}  // namespace

Array device_put(const Array& x, const NamedSharding& sharding, DevicePutOptions options,
                 std::source_location where) {
  const CallScope scope(where);
  const Span span = detail::call_span();
  detail::node_of(x, span);
  const bool is_tracing = trace::innermost() != nullptr;
  if (is_tracing) check_mesh_of_trace(sharding.mesh, "device_put");
  const Mesh& mesh = is_tracing ? trace::innermost()->mesh() : sharding.mesh;
  const std::string subject = subject_of("device_put", x);
  const Sharding to = to_sharding(sharding.mesh, sharding.spec, x.type(), subject, span);
  if (options.strict) check_even(sharding.mesh, to, x.type(), subject, span);
  if (!is_tracing) {
    return held_by(placed(x, mesh, to, "device_put", span),
                   detail::asked_groups(sharding.mpmd_idxs, mesh, subject, span), span);
  }
  check_is_not_mapped(sharding.spec, "device_put");
  return mesh.axes().empty() ? x : constrained(x, to);
}

Array device_put(const Array& x, const PartitionSpec& spec, DevicePutOptions options,
                 std::source_location where) {
  if (current_mesh().axes().empty()) {
    throw UserError({.what = "device_put: a PartitionSpec alone needs a mesh in scope",
                     .where = trace::call_span(where),
                     .found = to_string(spec) + " without a mesh",
                     .wanted = "a NamedSharding, or a use_mesh scope",
                     .cure = "write device_put(x, NamedSharding(mesh, P{...})), or open `use_mesh "
                             "scope(mesh);` first"});
  }
  return device_put(x, NamedSharding(current_mesh(), spec, where), options, where);
}

namespace {

Array with_constraint(const Operand& x, const Mesh& mesh, const PartitionSpec& spec) {
  const char* op = "with_sharding_constraint";
  const Span span = detail::call_span();
  if (trace::innermost() != nullptr) {
    const Array array = detail::as_array(op, x);
    if (mesh.axes().empty()) return array;
    check_is_not_mapped(spec, op);
    return constrained(array, to_constraint(mesh, spec, array.type(), op, span));
  }
  if (x.is_number()) return public_op(x.where, [&] { return detail::as_array("", x); });
  detail::tiles_of(x.array, span);
  if (mesh.axes().empty()) return x.array;
  const Sharding asked = to_constraint(mesh, spec, x.array.type(), subject_of(op, x.array), span);
  const detail::Placement& from = *x.array.node()->placement;
  const bool has_layout = from.mesh == mesh;
  const Sharding current = has_layout ? from.sharding : replicated_sharding(x.array.rank());
  return placed(x.array, mesh, closed(asked, current), op, span);
}

}  // namespace

Array with_sharding_constraint(Operand x, const PartitionSpec& spec) {
  const CallScope scope(x.where);
  if (trace::innermost() != nullptr) {
    check_scope_in_trace("with_sharding_constraint");
    return with_constraint(x, trace::innermost()->mesh(), spec);
  }
  const bool is_placed =
      !x.is_number() && x.array.is_concrete() && !x.array.node()->placement->mesh.axes().empty();
  return with_constraint(x, is_placed ? x.array.node()->placement->mesh : current_mesh(), spec);
}

Array with_sharding_constraint(Operand x, const NamedSharding& sharding) {
  const CallScope scope(x.where);
  if (trace::innermost() == nullptr) return with_constraint(x, sharding.mesh, sharding.spec);
  check_mesh_of_trace(sharding.mesh, "with_sharding_constraint");
  return with_constraint(x, trace::innermost()->mesh(), sharding.spec);
}

bool array_equal(const Array& a, const Array& b, std::source_location where) {
  const Span span = trace::call_span(where);
  const detail::Tiled tiles_a = detail::tiles_of(a, span);
  const detail::Tiled tiles_b = detail::tiles_of(b, span);
  if (a.type() != b.type()) return false;
  const char* op = "array_equal";
  const ops::HostArray x = detail::gather(tiles_a, op, span);
  const ops::HostArray y = detail::gather(tiles_b, op, span);
  return ops::dispatch(a.dtype(), [&](auto element) {
    using T = decltype(element);
    return std::ranges::equal(x.data<T>(), y.data<T>());
  });
}

std::string to_string(const Array& x) {
  if (x.is_empty()) return "an empty Array";
  std::string text = to_string(x.type());
  if (x.is_traced()) return text + " " + detail::traced_text(x);
  if (x.is_deleted()) return text + " (donated)";
  if (!x.is_concrete()) return text + " (abstract)";
  return text + " " + detail::elements_text(x);
}

std::string detail::elements_text(const Array& x) {
  constexpr std::size_t kShown = 16;
  const ops::HostArray host = gather(tiles_of(x, Span()), "to_string", Span());
  return ops::dispatch(x.dtype(), [&](auto element) {
    using T = decltype(element);
    using Shown = std::conditional_t<kIsHalf<T>, float, T>;
    const auto values = host.data<T>();
    std::string text = "[";
    for (std::size_t i = 0; i < values.size() && i < kShown; ++i) {
      text += fmt::format("{}{}", i > 0 ? ", " : "", Shown{values[i]});
    }
    return text + (values.size() > kShown ? ", ...]" : "]");
  });
}

}  // namespace tessera

/// For tools/gdb/tessera.py, which calls it by its name: what a debugger shows of an array.
extern "C" [[gnu::used]] const char* tessera_debug_text(const void* array) {
  static thread_local std::string text;
  try {
    const auto& x = *static_cast<const tessera::Array*>(array);
    // With several processes, to read an array takes all of them.
    const bool is_whole = tessera::run::world().transport == nullptr || !x.is_concrete();
    text = is_whole ? to_string(x) : to_string(x.type());
    if (x.node() != nullptr && x.node()->info != nullptr && !x.node()->info->path.empty()) {
      text.insert(std::min(text.find(']'), text.size() - 1) + 1,
                  " (parameter " + x.node()->info->path + ")");
    }
  } catch (const std::exception& error) {
    text = error.what();
  }
  return text.c_str();
}
