// Collectives in functions of the tiles of one device (shard_map).
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "ops/axis/axis.h"
#include "stablehlo/bytecode/scalars.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

using Kind = Attribute::Kind;
using Axes = std::vector<ops::NamedAxis>;

/// The coordinates of a device along the axes of the mesh.
Ints coordinates(const Mesh& mesh, std::int64_t device) {
  std::int64_t position = mesh.position_of(device);
  Ints result(mesh.axes().size());
  for (std::size_t i = result.size(); i-- > 0;) {
    result[i] = position % mesh.axes()[i].size;
    position /= mesh.axes()[i].size;
  }
  return result;
}

/// Lists of device ids, one per row.
std::vector<Ints> rows_of(Context& c, std::string_view name) {
  const Attribute& list = c.attribute(name);
  c.need(list.kind == Kind::tensor && list.type->shape.size() == 2, "no table of devices");
  const bytecode::Elements elements(list, 0);
  const std::int64_t devices = c.frame.context().mesh.num_devices();
  const std::int64_t width = list.type->shape[1];
  c.need(elements.size() <= 2 * devices, "a table of too many devices");
  std::vector<Ints> rows;
  for (std::int64_t i = 0; i < elements.size(); ++i) {
    if (i % width == 0) rows.emplace_back();
    rows.back().push_back(bytecode::integer_value(elements.format(), elements.bits(i)));
    c.need(rows.back().back() >= 0 && rows.back().back() < devices, "a device that does not exist");
  }
  return rows;
}

/// Groups of devices that differ only along some axes. The first axis is major.
std::vector<Ints> rows_along(Context& c, const Attribute& groups) {
  const ModuleContext& context = c.frame.context();
  const auto found = context.meshes.find(groups.items[0]->text);
  const Mesh& mesh = found == context.meshes.end() ? context.mesh : found->second;
  c.need(groups.items[1]->kind == Kind::array, "groups without a list of axes");
  std::map<Ints, std::map<std::int64_t, std::int64_t>> devices;  // by group and index in it
  for (std::int64_t device = 0; device < mesh.num_devices(); ++device) {
    Ints at = coordinates(mesh, device);
    std::int64_t index = 0;
    for (const Attribute* named : groups.items[1]->items) {
      c.need(named->kind == Kind::axis && named->items.size() == 1, "a part of an axis");
      const auto axis = std::ranges::find(mesh.axes(), named->items[0]->text, &MeshAxis::name);
      c.need(axis != mesh.axes().end(), "an axis that the mesh does not have");
      const std::int64_t place =
          std::exchange(at[static_cast<std::size_t>(axis - mesh.axes().begin())], 0);
      index = index * axis->size + place;
    }
    devices[at][index] = device;
  }
  std::vector<Ints> rows;
  for (const auto& [at, members] : devices) {
    rows.emplace_back();
    for (const auto& [index, device] : members) rows.back().push_back(device);
  }
  return rows;
}

/// If each group consists of all devices that differ only along some axes: these axes, major first.
std::optional<Axes> whole_axes(const Mesh& mesh, const std::vector<Ints>& groups) {
  const Ints first = coordinates(mesh, groups[0][0]);
  std::vector<std::pair<std::int64_t, std::size_t>> strides;  // in the group, per axis
  for (std::size_t i = 0; i < groups[0].size(); ++i) {
    const Ints at = coordinates(mesh, groups[0][i]);
    std::size_t differing = 0;
    std::size_t axis = 0;
    for (std::size_t k = 0; k < at.size(); ++k) {
      if (at[k] == first[k]) continue;
      ++differing;
      axis = k;
    }
    if (differing == 1 && at[axis] == 1) strides.emplace_back(static_cast<std::int64_t>(i), axis);
  }
  std::ranges::sort(strides, std::greater<>());
  Axes axes;
  std::int64_t count = 1;
  for (const auto& [stride, axis] : strides) {
    const MeshAxis& named = mesh.axes()[axis];
    axes.push_back({.name = named.name, .size = named.size});
    count *= named.size;
  }
  if (count != static_cast<std::int64_t>(groups[0].size()) ||
      count * static_cast<std::int64_t>(groups.size()) != mesh.num_devices()) {
    return std::nullopt;
  }
  for (const Ints& group : groups) {
    const Ints start = coordinates(mesh, group[0]);
    for (std::size_t i = 0; i < group.size(); ++i) {
      Ints expected = start;
      auto rest = static_cast<std::int64_t>(i);
      for (std::size_t k = strides.size(); k-- > 0;) {
        const std::size_t axis = strides[k].second;
        expected[axis] = rest % mesh.axes()[axis].size;
        rest /= mesh.axes()[axis].size;
      }
      if (coordinates(mesh, group[i]) != expected) return std::nullopt;
    }
  }
  return axes;
}

/// The index of a device along some axes, row-major.
std::int64_t index_of(const Mesh& mesh, const std::vector<std::size_t>& along,
                      std::int64_t device) {
  const Ints at = coordinates(mesh, device);
  std::int64_t index = 0;
  for (const std::size_t k : along) index = index * mesh.axes()[k].size + at[k];
  return index;
}

Axes named_axes(const Mesh& mesh, const std::vector<std::size_t>& along) {
  Axes axes;
  for (const std::size_t k : along) {
    axes.push_back({.name = mesh.axes()[k].name, .size = mesh.axes()[k].size});
  }
  return axes;
}

void check_mapped(Context& c, const Axes& axes) {
  for (const ops::NamedAxis& axis : axes) {
    const auto is_it = [&](const MeshAxis& each) { return each.name == axis.name; };
    c.need(std::ranges::any_of(c.frame.context().manual, is_it),
           "a collective along axes that are not manual");
  }
}

std::int64_t size_of(const Axes& axes) {
  std::int64_t count = 1;
  for (const ops::NamedAxis& axis : axes) count *= axis.size;
  return count;
}

/// The axes along which devices of a group differ.
std::vector<std::size_t> moving_axes(const Mesh& mesh, const std::vector<Ints>& groups) {
  std::vector<std::size_t> result;
  for (std::size_t k = 0; k < mesh.axes().size(); ++k) {
    const auto moves = [&](const Ints& group) {
      const std::int64_t first = coordinates(mesh, group[0])[k];
      return std::ranges::any_of(
          group, [&](std::int64_t device) { return coordinates(mesh, device)[k] != first; });
    };
    if (std::ranges::any_of(groups, moves)) result.push_back(k);
  }
  return result;
}

/// The values of all devices along the axes, stacked along a new dimension 0.
ValueId gathered(ir::Builder& b, ValueId x, const Axes& axes) {
  Shape shape = b.type(x).shape;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) x = ops::axis_gather(b, x, *axis);
  shape.insert(shape.begin(), size_of(axes));
  return ops::reshape(b, x, std::move(shape));
}

/// The number for this device, from one number per index along the axes.
ValueId number_of(ir::Builder& b, ValueId index, const Ints& numbers) {
  ValueId result = ops::scalar(b, static_cast<double>(numbers[0]), DType::i32);
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    const ValueId here =
        ops::compare(b, "eq", index, ops::scalar(b, static_cast<double>(i), DType::i32));
    result =
        ops::select(b, here, ops::scalar(b, static_cast<double>(numbers[i]), DType::i32), result);
  }
  return result;
}

/// Which devices exchange data in a collective.
struct Groups {
  Axes axes;  // along which devices of a group differ
  /// Unless a group is all devices along the axes: per index along the axes, the indices of its
  /// group and its place among them.
  std::vector<Ints> members = {};
  Ints places = {};
  std::int64_t size = 1;
};

Groups groups_of(Context& c) {
  const Mesh& mesh = c.frame.context().mesh;
  const Attribute& stated = c.attribute("replica_groups");
  const std::vector<Ints> rows =
      stated.kind == Kind::replica_groups ? rows_along(c, stated) : rows_of(c, "replica_groups");
  c.need(!rows.empty() && !rows[0].empty(), "no groups");
  if (const std::optional<Axes> axes = whole_axes(mesh, rows)) {
    check_mapped(c, *axes);
    return {.axes = *axes, .size = size_of(*axes)};
  }
  const std::vector<std::size_t> along = moving_axes(mesh, rows);
  Groups result{.axes = named_axes(mesh, along), .size = static_cast<std::int64_t>(rows[0].size())};
  check_mapped(c, result.axes);
  result.members.resize(static_cast<std::size_t>(size_of(result.axes)));
  result.places.resize(result.members.size());
  for (const Ints& row : rows) {
    Ints members;
    for (const std::int64_t device : row) members.push_back(index_of(mesh, along, device));
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto at = static_cast<std::size_t>(members[i]);
      c.need(result.members[at].empty() || result.members[at] == members,
             "groups that are not the same at all positions along the other mesh axes");
      result.members[at] = members;
      result.places[at] = static_cast<std::int64_t>(i);
    }
  }
  for (const Ints& members : result.members) c.need(!members.empty(), "a device without a group");
  return result;
}

/// The values of the group of each device, stacked along a new dimension 0.
ValueId gathered_in(Context& c, ValueId x, const Groups& groups) {
  ir::Builder& b = c.b();
  const ValueId all = gathered(b, x, groups.axes);
  if (groups.members.empty()) return all;
  const ValueId index = ops::axis_index(b, groups.axes);
  Values rows;
  for (std::int64_t i = 0; i < groups.size; ++i) {
    Ints column;
    for (const Ints& members : groups.members)
      column.push_back(members[static_cast<std::size_t>(i)]);
    rows.push_back(ops::reshape(b, number_of(b, index, column), {1}));
  }
  return ops::gather(b, all, ops::concatenate(b, rows, 0), 0);
}

/// [n, a.., d, b..] -> [a.., n * d, b..]; d is dimension `dim`.
ValueId merged(Context& c, ValueId x, std::int64_t dim) {
  Shape shape = c.type(x).shape;
  Ints order;
  for (std::int64_t i = 1; i < static_cast<std::int64_t>(shape.size()); ++i) order.push_back(i);
  order.insert(order.begin() + dim, 0);
  const std::int64_t count = shape[0];
  shape.erase(shape.begin());
  shape[static_cast<std::size_t>(dim)] *= count;
  return ops::reshape(c.b(), ops::transpose(c.b(), x, std::move(order)), std::move(shape));
}

/// [a.., n * d, b..] -> [n, a.., d, b..]
ValueId divided(Context& c, ValueId x, std::int64_t dim, std::int64_t count) {
  Shape shape = c.type(x).shape;
  const auto at = static_cast<std::size_t>(dim);
  c.need(at < shape.size() && count > 0 && shape[at] % count == 0,
         "a dimension whose size is not divisible by the number of devices");
  shape[at] /= count;
  shape.insert(shape.begin() + dim, count);
  Ints order = {dim};
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(shape.size()); ++i) {
    if (i != dim) order.push_back(i);
  }
  return ops::transpose(c.b(), ops::reshape(c.b(), x, std::move(shape)), std::move(order));
}

Values all_reduce(Context& c) {
  const Groups groups = groups_of(c);
  Values results;
  for (const ValueId operand : c.operands) {
    results.push_back(reduced_with(c, gathered_in(c, operand, groups), c.region(0), {0}));
  }
  return results;
}

Values all_gather(Context& c) {
  const Groups groups = groups_of(c);
  Values results;
  const std::int64_t dim = c.integer("all_gather_dim");
  for (const ValueId operand : c.operands) {
    c.need(dim >= 0 && dim < c.type(operand).rank(), "a dimension that does not exist");
    results.push_back(merged(c, gathered_in(c, operand, groups), dim));
  }
  return results;
}

/// Slice j of dimension 0 goes to device j of the group; slice i of the result comes from there.
ValueId exchanged(Context& c, ValueId parts, const Groups& groups, bool is_pinned) {
  ir::Builder& b = c.b();
  const Shape shape = c.type(parts).shape;
  const Axes& axes = groups.axes;
  if (!groups.members.empty()) {
    const ValueId all = gathered_in(c, parts, groups);
    Shape sizes = c.type(all).shape;
    sizes[1] = 1;
    Values starts(sizes.size(), ops::scalar(b, 0, DType::i32));
    starts[1] = number_of(b, ops::axis_index(b, axes), groups.places);
    return ops::reshape(b, ops::dynamic_slice(b, all, starts, sizes), shape);
  }
  // Exchanges along one axis after the other, moving each axis to the front in turn.
  Shape split;
  for (const ops::NamedAxis& axis : axes) split.push_back(axis.size);
  split.insert(split.end(), shape.begin() + 1, shape.end());
  ValueId x = ops::reshape(b, parts, split);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto dim = static_cast<std::int64_t>(i);
    Ints order = {dim};
    Ints back;
    for (std::int64_t k = 0; k < static_cast<std::int64_t>(split.size()); ++k) {
      if (k != dim) order.push_back(k);
      back.push_back(k < dim ? k + 1 : k == dim ? 0 : k);
    }
    x = b.emit("axis_all_to_all",
               {{"axis", axes[i].name}, {"is_pinned", is_pinned}, {"size", axes[i].size}},
               {ops::transpose(b, x, order)});
    x = ops::transpose(b, x, back);
  }
  return ops::reshape(b, x, shape);
}

Values reduce_scatter(Context& c) {
  const Groups groups = groups_of(c);
  const ValueId parts = divided(c, c.operand(0), c.integer("scatter_dimension"), groups.size);
  return {reduced_with(c, exchanged(c, parts, groups, false), c.region(0), {0})};
}

Values all_to_all(Context& c) {
  const Groups groups = groups_of(c);
  const std::int64_t split = c.integer("split_dimension");
  const std::int64_t concat = c.integer("concat_dimension");
  Values results;
  for (const ValueId operand : c.operands) {
    c.need(concat >= 0 && concat < c.type(operand).rank(), "a dimension that does not exist");
    const ValueId parts = divided(c, operand, split, groups.size);
    // Pinned, because the program says which device does which part of the work.
    results.push_back(merged(c, exchanged(c, parts, groups, true), concat));
  }
  return results;
}

/// Where devices send data. Devices that differ only along other axes do the same.
struct Route {
  Axes axes;     // along which data moves
  Ints sources;  // per index along these, row-major: the index that it receives from, or -1
};

std::optional<Route> route_along(Context& c, const std::vector<Ints>& pairs,
                                 const std::vector<std::size_t>& along) {
  const Mesh& mesh = c.frame.context().mesh;
  Route route{.axes = named_axes(mesh, along), .sources = {}};
  const std::int64_t count = size_of(route.axes);
  route.sources.assign(static_cast<std::size_t>(count), -1);
  for (const Ints& pair : pairs) {
    const std::int64_t target = index_of(mesh, along, pair.back());
    std::int64_t& source = route.sources[static_cast<std::size_t>(target)];
    const std::int64_t given = index_of(mesh, along, pair[0]);
    if (source >= 0 && source != given) return std::nullopt;
    source = given;
  }
  const auto is_used = [](std::int64_t source) { return source >= 0; };
  const std::int64_t used = std::ranges::count_if(route.sources, is_used);
  const bool is_complete =
      used * (mesh.num_devices() / count) == static_cast<std::int64_t>(pairs.size());
  return is_complete ? std::optional(route) : std::nullopt;
}

Route route_of(Context& c) {
  const Mesh& mesh = c.frame.context().mesh;
  const std::vector<Ints> pairs = rows_of(c, "source_target_pairs");
  std::optional<Route> route = route_along(c, pairs, moving_axes(mesh, pairs));
  if (!route) {
    std::vector<std::size_t> all(mesh.axes().size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    route = route_along(c, pairs, all);
  }
  c.need(route.has_value(), "a device that receives more than once");
  check_mapped(c, route->axes);
  return *route;
}

/// Completes sources to a permutation. Empty if a device sends to several devices.
Ints permutation_of(const Ints& given) {
  Ints sources = given;
  std::int64_t free = 0;
  for (std::int64_t& source : sources) {
    if (source >= 0) continue;
    while (std::ranges::find(given, free) != given.end()) ++free;
    source = free++;
  }
  const std::set<std::int64_t> all(sources.begin(), sources.end());
  return all.size() == sources.size() ? sources : Ints();
}

Values collective_permute(Context& c) {
  ir::Builder& b = c.b();
  const Route route = route_of(c);
  if (route.axes.empty()) return {c.operand(0)};
  const ValueId index = ops::axis_index(b, route.axes);
  const ValueId source = number_of(b, index, route.sources);
  const Ints permutation = permutation_of(route.sources);
  ValueId moved = c.operand(0);
  if (route.axes.size() == 1 && !permutation.empty()) {
    moved = ops::axis_permute(b, moved, route.axes[0], permutation);
  } else {
    const Shape shape = b.type(moved).shape;
    const ValueId all = gathered(b, moved, route.axes);
    Shape sizes = b.type(all).shape;
    sizes[0] = 1;
    Values starts(sizes.size(), ops::scalar(b, 0, DType::i32));
    starts[0] = source;
    moved = ops::reshape(b, ops::dynamic_slice(b, all, starts, sizes), shape);
  }
  // Devices to which nothing is sent get zeros.
  if (std::ranges::find(route.sources, -1) == route.sources.end()) return {moved};
  const ValueId is_sent = ops::compare(b, "ge", source, ops::scalar(b, 0, DType::i32));
  const ValueId mask = ops::broadcast_scalar(b, is_sent, b.type(moved).shape);
  return {ops::select(b, mask, moved, ops::full_like(b, 0.0, moved))};
}

}  // namespace

const Handlers& collective_handlers() {
  static const Handlers kHandlers = {{"all_gather", all_gather},
                                     {"all_reduce", all_reduce},
                                     {"all_to_all", all_to_all},
                                     {"collective_permute", collective_permute},
                                     {"reduce_scatter", reduce_scatter}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
