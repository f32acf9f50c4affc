// Collectives over mapped axes: the function of one device or row exchanges data with the others.
#include "ops/axis/axis.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include <tessera/transform.h>

#include "api/operands.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera {

using detail::as_array;
using detail::emit;
using detail::Ids;
using detail::Ints;
using detail::public_op;
using ir::Builder;
using ir::ValueId;
using ops::NamedAxis;

CollectiveAxes::CollectiveAxes(const char* name) : names{name} {}
CollectiveAxes::CollectiveAxes(std::string name) : names{std::move(name)} {}
CollectiveAxes::CollectiveAxes(std::initializer_list<const char*> list)
    : names(list.begin(), list.end()) {}

namespace {

std::vector<NamedAxis> mapped(std::string_view op, const CollectiveAxes& axes) {
  std::vector<NamedAxis> found;
  for (const std::string& name : axes.names) {
    const std::int64_t size = trace::mapped_axis_size(name);
    if (size == 0) {
      const std::string known = trace::mapped_axis_names();
      detail::fail(op, "no mapped axis has this name", "axis '" + name + "'",
                   known.empty() ? "a call within shard_map, or within vmap with .axis_name"
                                 : "one of the mapped axes: " + known,
                   "call it in the function that shard_map or vmap maps over the axis");
    }
    const bool is_repeated =
        std::ranges::any_of(found, [&](const NamedAxis& axis) { return axis.name == name; });
    if (is_repeated) {
      detail::fail(op, "an axis is named twice", "axis '" + name + "'", "different axes",
                   "name each axis once");
    }
    found.push_back({.name = name, .size = size});
  }
  return found;
}

std::int64_t size_of(const std::vector<NamedAxis>& axes) {
  return std::accumulate(
      axes.begin(), axes.end(), std::int64_t{1},
      [](std::int64_t product, const NamedAxis& axis) { return product * axis.size; });
}

/// The values of `x` in all elements of the axes, stacked along a new dimension 0. The first axis
/// is the major one.
ValueId gathered(Builder& b, ValueId x, const std::vector<NamedAxis>& axes) {
  const Shape local = b.type(x).shape;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) x = ops::axis_gather(b, x, *axis);
  return ops::reshape(b, x, ops::with_first(size_of(axes), local));
}

/// Moves dimension 0 to position `to`.
ValueId move_from_front(Builder& b, ValueId x, std::int64_t to) {
  Ints permutation = ops::dims_from(1, b.type(x).shape.size() - 1);
  permutation.insert(permutation.begin() + to, 0);
  return ops::transpose(b, x, std::move(permutation));
}

/// [n, a.., d, b..] -> [a.., n * d, b..] if `tiled`, else [a.., n, d, b..]; d is dimension `dim`.
ValueId joined(Builder& b, ValueId x, std::int64_t dim, bool tiled) {
  const ValueId moved = move_from_front(b, x, dim);
  if (!tiled) return moved;
  Shape shape = b.type(moved).shape;
  const auto at = shape.begin() + dim;
  at[1] *= at[0];
  shape.erase(at);
  return ops::reshape(b, moved, std::move(shape));
}

/// [a.., n * d, b..] -> [n, a.., d, b..] if `tiled`, else [a.., n, b..] -> [n, a.., b..].
ValueId divided(Builder& b, ValueId x, std::int64_t dim, std::int64_t count, bool tiled) {
  if (!tiled) return ops::move_to_front(b, x, dim);
  Shape shape = b.type(x).shape;
  shape[ops::at(dim)] /= count;
  shape.insert(shape.begin() + dim, count);
  return ops::move_to_front(b, ops::reshape(b, x, std::move(shape)), dim);
}

void check_divided(std::string_view op, const Array& x, std::int64_t dim, const NamedAxis& axis,
                   bool tiled) {
  const std::int64_t size = x.shape()[ops::at(dim)];
  if (tiled ? size % axis.size == 0 : size == axis.size) return;
  detail::fail(
      op, fmt::format("the size of dimension {} does not fit the axis", dim),
      fmt::format("{} and axis '{}' of size {}", detail::describe(x), axis.name, axis.size),
      tiled ? fmt::format("a multiple of {}", axis.size)
            : fmt::format("size {}, one slice per element of the axis", axis.size),
      tiled ? "pad the array" : "reshape the array, or set .tiled = true");
}

Array reduced(const char* op, const Operand& x, const CollectiveAxes& axes,
              std::string_view reduction) {
  return public_op(x.where, [&] {
    const std::vector<NamedAxis> over = mapped(op, axes);
    return emit({as_array(op, x)}, [&](Builder& b, const Ids& ids) {
      const ValueId all = gathered(b, ids[0], over);
      // bf16 is summed in f32 and rounded once.
      if (reduction == "reduce_sum") return ops::reduce_sum(b, all, {0});
      return b.emit(reduction, {{"dims", Ints{0}}}, {all});
    });
  });
}

}  // namespace

std::int64_t axis_size(const CollectiveAxes& axes, std::source_location where) {
  const CallScope scope(where);
  return size_of(mapped("axis_size", axes));
}

Array axis_index(const CollectiveAxes& axes, std::source_location where) {
  return public_op(where, [&] {
    const std::vector<NamedAxis> over = mapped("axis_index", axes);
    return emit({}, [&](Builder& b, const Ids&) { return ops::axis_index(b, over); });
  });
}

Array psum(Operand x, const CollectiveAxes& axes) { return reduced("psum", x, axes, "reduce_sum"); }
Array pmax(Operand x, const CollectiveAxes& axes) { return reduced("pmax", x, axes, "reduce_max"); }
Array pmin(Operand x, const CollectiveAxes& axes) { return reduced("pmin", x, axes, "reduce_min"); }

Array pmean(Operand x, const CollectiveAxes& axes) {
  return public_op(x.where, [&] {
    const double count = static_cast<double>(size_of(mapped("pmean", axes)));
    return psum(x, axes) / count;
  });
}

Array all_gather(Operand x, const CollectiveAxes& axes, const AxisDim& options) {
  return public_op(x.where, [&] {
    const std::vector<NamedAxis> over = mapped("all_gather", axes);
    const Array v = as_array("all_gather", x);
    const std::int64_t dim = detail::checked_axis(
        "all_gather", options.dim, v.rank() + (options.tiled ? 0 : 1), detail::describe(v));
    return emit({v}, [&](Builder& b, const Ids& ids) {
      return joined(b, gathered(b, ids[0], over), dim, options.tiled);
    });
  });
}

Array psum_scatter(Operand x, const std::string& axis, const AxisDim& options) {
  return public_op(x.where, [&] {
    const NamedAxis over = mapped("psum_scatter", axis)[0];
    const Array v = as_array("psum_scatter", x);
    const std::int64_t dim =
        detail::checked_axis("psum_scatter", options.dim, v.rank(), detail::describe(v));
    check_divided("psum_scatter", v, dim, over, options.tiled);
    return emit({v}, [&](Builder& b, const Ids& ids) {
      const ValueId parts = divided(b, ids[0], dim, over.size, options.tiled);
      return ops::reduce_sum(b, ops::axis_all_to_all(b, parts, over), {0});
    });
  });
}

Array all_to_all(Operand x, const std::string& axis, std::int64_t split_dim,
                 std::int64_t concat_dim, bool tiled) {
  return public_op(x.where, [&] {
    const NamedAxis over = mapped("all_to_all", axis)[0];
    const Array v = as_array("all_to_all", x);
    const std::string found = detail::describe(v);
    const std::int64_t split = detail::checked_axis("all_to_all", split_dim, v.rank(), found);
    const std::int64_t concat = detail::checked_axis("all_to_all", concat_dim, v.rank(), found);
    check_divided("all_to_all", v, split, over, tiled);
    return emit({v}, [&](Builder& b, const Ids& ids) {
      const ValueId parts = divided(b, ids[0], split, over.size, tiled);
      // Pinned, because the user's function says which device does which part of the work.
      const ValueId moved =
          b.emit("axis_all_to_all", {{"axis", over.name}, {"is_pinned", true}, {"size", over.size}},
                 {parts});
      return joined(b, moved, concat, tiled);
    });
  });
}

namespace {

/// Completes the pairs to a permutation and returns its sources, per destination. A destination
/// without a source gets the next element that sends nothing.
Ints completed(const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs,
               const NamedAxis& axis, std::vector<bool>& is_receiving) {
  Ints sources(ops::at(axis.size), -1);
  std::vector<bool> is_sending(ops::at(axis.size), false);
  const auto check = [&](std::int64_t element, const std::vector<bool>& is_taken,
                         const char* what) {
    const bool is_inside = element >= 0 && element < axis.size;
    if (is_inside && !is_taken[ops::at(element)]) return;
    detail::fail(
        "ppermute",
        fmt::format("element {} cannot be a {}{}", element, what, is_inside ? " twice" : ""),
        fmt::format("axis '{}' of size {}", axis.name, axis.size),
        "pairs (source, destination), each element at most once on each side",
        "write pairs like {{0, 1}, {1, 2}, {2, 0}}");
  };
  for (const auto& [source, destination] : pairs) {
    check(source, is_sending, "source");
    check(destination, is_receiving, "destination");
    is_sending[ops::at(source)] = true;
    is_receiving[ops::at(destination)] = true;
    sources[ops::at(destination)] = source;
  }
  std::size_t free = 0;
  for (std::int64_t& source : sources) {
    if (source >= 0) continue;
    while (is_sending[free]) ++free;
    source = static_cast<std::int64_t>(free++);
  }
  return sources;
}

}  // namespace

Array ppermute(Operand x, const std::string& axis,
               const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs) {
  return public_op(x.where, [&] {
    const NamedAxis over = mapped("ppermute", axis)[0];
    std::vector<bool> is_receiving(ops::at(over.size), false);
    const Ints sources = completed(pairs, over, is_receiving);
    return emit({as_array("ppermute", x)}, [&](Builder& b, const Ids& ids) {
      ValueId moved = ops::axis_permute(b, ids[0], over, sources);
      const ValueId index = ops::axis_index(b, over);
      for (std::size_t i = 0; i < is_receiving.size(); ++i) {
        if (is_receiving[i]) continue;
        const ValueId here =
            ops::compare(b, "eq", index, ops::scalar(b, static_cast<double>(i), DType::i32));
        const ValueId mask = ops::broadcast_scalar(b, here, b.type(moved).shape);
        moved = ops::select(b, mask, ops::full_like(b, 0.0, moved), moved);
      }
      return moved;
    });
  });
}

}  // namespace tessera
