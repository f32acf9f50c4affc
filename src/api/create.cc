// Making, placing and comparing arrays.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

#include <tessera/error.h>
#include <tessera/ops.h>

#include "api/operands.h"
#include "ops/emit.h"

namespace tessera {

using detail::emit;
using detail::Ids;
using detail::public_op;
using ir::Builder;

namespace detail {

Array array_from(DType dtype, Shape shape, const void* elements, std::size_t count,
                 const std::source_location& where) {
  const bool is_negative =
      std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size < 0; });
  if (is_negative || num_elements(shape) != static_cast<std::int64_t>(count)) {
    throw UserError({.what = "array: the number of elements does not fit the shape",
                     .where = trace::call_span(where),
                     .found = fmt::format("{} elements for {}", count, to_string(shape)),
                     .wanted = is_negative ? std::string("sizes of 0 or more")
                                           : fmt::format("{} elements", num_elements(shape)),
                     .cure = "check the shape"});
  }
  ops::HostArray host({dtype, std::move(shape)});
  if (count > 0) std::memcpy(host.bytes().data(), elements, host.bytes().size());
  const Placement* placement = replicated_placement(host.type(), current_mesh());
  return make_concrete(placement, scatter(host, *placement));
}

Array array_from(const std::vector<bool>& elements, Shape shape,
                 const std::source_location& where) {
  const std::vector<std::uint8_t> bytes(elements.begin(), elements.end());
  return array_from(DType::boolean, std::move(shape), bytes.data(), bytes.size(), where);
}

}  // namespace detail

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

Array arange(std::int64_t limit, DType dtype, std::source_location where) {
  return iota({std::max<std::int64_t>(limit, 0)}, 0, dtype, where);
}

Array arange(std::int64_t start, std::int64_t limit, std::int64_t step, DType dtype,
             std::source_location where) {
  return public_op(where, [&] {
    if (step == 0) {
      detail::fail("arange", "the step is 0", "0", "a step above or below 0",
                   "use full() for a constant");
    }
    const std::int64_t sign = step > 0 ? 1 : -1;
    const std::int64_t count = ((limit - start) * sign + (step * sign - 1)) / (step * sign);
    const Array index = iota({std::max<std::int64_t>(count, 0)}, 0, dtype);
    return index * step + start;
  });
}

namespace {

/// While tracing: x laid out as `spec` says on the mesh of the trace.
Array constrained(const Array& x, const PartitionSpec& spec, const char* subject) {
  const Mesh& mesh = trace::innermost()->mesh();
  if (mesh.axes().empty()) return x;
  const Sharding sharding = to_sharding(mesh, spec, x.type(), subject, detail::call_span());
  return emit({x}, [&](Builder& b, const Ids& ids) {
    return ops::sharding_constraint(b, ids[0], sharding);
  });
}

void check_mesh_of_trace(const Mesh& mesh, const char* subject) {
  const Mesh& traced = trace::innermost()->mesh();
  if (traced.axes().empty() || traced == mesh) return;
  detail::fail(subject, "the sharding is for another mesh", to_string(mesh), to_string(traced),
               "use the mesh of the surrounding function: with_sharding_constraint(x, P{...})");
}

Array placed(const Array& x, const Mesh& mesh, const PartitionSpec& spec, const char* subject,
             const Span& where) {
  const run::Tiles tiles = detail::tiles_of(x, where);
  std::string name(subject);
  const detail::ParamInfo* info = x.node()->info;
  if (info != nullptr && !info->path.empty()) name += " of " + info->path;
  const detail::Placement* to =
      detail::placement_of(x.type(), mesh, to_sharding(mesh, spec, x.type(), name, where));
  const detail::Placement& from = *x.node()->placement;
  if (&from == to) return x;
  Array moved = detail::make_concrete(to, detail::move_tiles(from, tiles, *to, subject, where));
  moved.node()->info = x.node()->info;
  return moved;
}

}  // namespace

Array device_put(const Array& x, const NamedSharding& sharding, std::source_location where) {
  const CallScope scope(where);
  const Span span = detail::call_span();
  detail::node_of(x, span);
  if (trace::innermost() == nullptr) {
    return placed(x, sharding.mesh, sharding.spec, "device_put", span);
  }
  check_mesh_of_trace(sharding.mesh, "device_put");
  return constrained(x, sharding.spec, "device_put");
}

Array device_put(const Array& x, const PartitionSpec& spec, std::source_location where) {
  if (current_mesh().axes().empty()) {
    throw UserError({.what = "device_put: a PartitionSpec alone needs a mesh in scope",
                     .where = trace::call_span(where),
                     .found = to_string(spec) + " without a mesh",
                     .wanted = "a NamedSharding, or a use_mesh scope",
                     .cure = "write device_put(x, NamedSharding(mesh, P{...})), or open "
                             "`use_mesh scope(mesh);` before"});
  }
  return device_put(x, NamedSharding(current_mesh(), spec, where), where);
}

Array with_sharding_constraint(Operand x, const PartitionSpec& spec) {
  const CallScope scope(x.where);
  if (trace::innermost() != nullptr) {
    return constrained(detail::as_array("with_sharding_constraint", x), spec,
                       "with_sharding_constraint");
  }
  if (x.is_number()) return public_op(x.where, [&] { return detail::as_array("", x); });
  const Span span = detail::call_span();
  detail::tiles_of(x.array, span);
  const Mesh& own = x.array.node()->placement->mesh;
  const Mesh mesh = own.axes().empty() ? current_mesh() : own;
  if (mesh.axes().empty()) return x.array;
  return placed(x.array, mesh, spec, "with_sharding_constraint", span);
}

Array with_sharding_constraint(Operand x, const NamedSharding& sharding) {
  const CallScope scope(x.where);
  if (trace::innermost() == nullptr) return device_put(x.array, sharding, x.where);
  check_mesh_of_trace(sharding.mesh, "with_sharding_constraint");
  return constrained(detail::as_array("with_sharding_constraint", x), sharding.spec,
                     "with_sharding_constraint");
}

bool array_equal(const Array& a, const Array& b, std::source_location where) {
  const Span span = trace::call_span(where);
  const run::Tiles tiles_a = detail::tiles_of(a, span);
  const run::Tiles tiles_b = detail::tiles_of(b, span);
  if (a.type() != b.type()) return false;
  const char* op = "array_equal";
  const ops::HostArray x = detail::gather(*a.node()->placement, tiles_a, op, span);
  const ops::HostArray y = detail::gather(*b.node()->placement, tiles_b, op, span);
  return ops::dispatch(a.dtype(), [&](auto element) {
    using T = decltype(element);
    return std::ranges::equal(x.data<T>(), y.data<T>());
  });
}

std::string to_string(const Array& x) {
  if (x.is_empty()) return "an empty Array";
  std::string text = to_string(x.type());
  if (x.is_traced()) return text + " (traced)";
  if (x.is_deleted()) return text + " (donated)";
  if (!x.is_concrete()) return text + " (abstract)";
  constexpr std::size_t kShown = 16;
  const ops::HostArray host =
      detail::gather(*x.node()->placement, detail::tiles_of(x, Span()), "to_string", Span());
  return ops::dispatch(x.dtype(), [&](auto element) {
    const auto values = host.data<decltype(element)>();
    text += " [";
    for (std::size_t i = 0; i < values.size() && i < kShown; ++i) {
      text += fmt::format("{}{}", i > 0 ? ", " : "", values[i]);
    }
    return text + (values.size() > kShown ? ", ...]" : "]");
  });
}

}  // namespace tessera
