// Functions of the tiles of one device (shard_map), and the collectives in them.
#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>

#include "ops/axis/axis.h"
#include "stablehlo/bytecode/scalars.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

using Kind = Attribute::Kind;
using Axes = std::vector<ops::NamedAxis>;

std::vector<MeshAxis> axes_of(Context& c, const Attribute& names) {
  c.need(names.kind == Kind::manual_axes, "a list of axes of another kind");
  std::vector<MeshAxis> axes;
  for (const MeshAxis& axis : c.frame.context().mesh.axes()) {
    const auto is_named = [&](const Attribute* name) { return name->text == axis.name; };
    if (std::ranges::any_of(names.items, is_named)) axes.push_back(axis);
  }
  c.need(axes.size() == names.items.size(), "an axis that the mesh does not have");
  return axes;
}

/// What a sharding says about manual axes.
struct ManualSharding {
  TileSpec split;               // per dimension
  std::vector<MeshAxis> terms;  // axes whose devices have terms of a sum
};

/// Of value `i` of a list of shardings.
ManualSharding sharding_of(Context& c, const Attribute& shardings, std::size_t i,
                           const std::vector<MeshAxis>& manual) {
  c.need(shardings.kind == Kind::shardings && i < shardings.items.size(), "too few shardings");
  const Attribute& sharding = *shardings.items[i];
  c.need(sharding.kind == Kind::sharding, "a sharding of another kind");
  const ModuleContext& context = c.frame.context();
  const auto mesh = context.meshes.find(sharding.items[0]->text);
  c.need(mesh == context.meshes.end() || mesh->second == context.mesh, "tiles of a second mesh");
  const auto is_manual = [&](std::string_view name) {
    return std::ranges::any_of(manual, [&](const MeshAxis& each) { return each.name == name; });
  };
  ManualSharding result;
  for (const MeshAxis& axis : unreduced_axes(context, sharding, c.op)) {
    if (is_manual(axis.name)) result.terms.push_back(axis);
  }
  for (const MeshAxis& axis : result.terms) result.split.push_back({axis.name});
  for (std::int64_t dim = 0; dim < sharding.numbers[0]; ++dim) {
    std::vector<std::string> names;
    for (const Attribute* axis : sharding.items[static_cast<std::size_t>(1 + dim)]->items) {
      c.need(axis->kind == Kind::axis && axis->items.empty(), "a part of an axis");
      if (is_manual(axis->text)) names.emplace_back(axis->text);
    }
    result.split.push_back(std::move(names));
  }
  return result;
}

/// `function` with dimensions of size 1 in front of inputs and outputs: a device has one term.
ir::Function with_front(const ir::Function& function, const std::vector<ManualSharding>& inputs,
                        const std::vector<ManualSharding>& outputs) {
  ir::Function result = ir::empty_like(function);
  ir::Builder b(result);
  Values values;
  for (std::size_t i = 0; i < function.inputs.size(); ++i) {
    const Type& type = function.type(function.inputs[i]);
    Type given = type;
    if (i < inputs.size()) given.shape.insert(given.shape.begin(), inputs[i].terms.size(), 1);
    values.push_back(ops::reshape(b, b.add_input(given), type.shape));
  }
  Values results = b.inline_function(function, values);
  for (std::size_t i = 0; i < results.size(); ++i) {
    Shape shape = b.type(results[i]).shape;
    shape.insert(shape.begin(), outputs[i].terms.size(), 1);
    results[i] = ops::reshape(b, results[i], std::move(shape));
  }
  b.set_outputs(std::move(results));
  return result;
}

Values manual_computation(Context& c) {
  ModuleContext& context = c.frame.context();
  c.need(context.map_tiles != nullptr, "no way to map a function over devices");
  ManualBody body;
  body.axes = axes_of(c, c.attribute("manual_axes"));
  body.where = c.b().span();
  const Frame::Captures captures = c.frame.captures_of(c.op);
  Values operands = c.operands;
  std::vector<ManualSharding> inputs;
  std::vector<ManualSharding> outputs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    inputs.push_back(sharding_of(c, c.attribute("in_shardings"), i, body.axes));
    operands[i] = terms_of(c.frame, operands[i], inputs[i].terms);
    c.need(inputs[i].split.size() == c.type(operands[i]).shape.size(),
           "a sharding of another rank");
    body.inputs.push_back(inputs[i].split);
  }
  for (std::size_t i = 0; i < c.op.results.size(); ++i) {
    outputs.push_back(sharding_of(c, c.attribute("out_shardings"), i, body.axes));
    body.outputs.push_back(outputs[i].split);
  }
  const Values captured = c.frame.captured(captures);
  const std::vector<MeshAxis> outer = context.manual;
  context.manual.insert(context.manual.end(), body.axes.begin(), body.axes.end());
  ir::Function function = *c.frame.nested(c.op, c.region(0), captures);
  context.manual = outer;
  c.need(function.outputs.size() == body.outputs.size(), "the number of results");
  // Captured values come last: they are the same on all devices.
  std::ranges::rotate(function.inputs,
                      function.inputs.begin() + static_cast<std::ptrdiff_t>(captured.size()));
  operands.insert(operands.end(), captured.begin(), captured.end());
  const auto has_terms = [](const ManualSharding& sharding) { return !sharding.terms.empty(); };
  if (std::ranges::any_of(inputs, has_terms) || std::ranges::any_of(outputs, has_terms)) {
    function = with_front(function, inputs, outputs);
  }
  body.function = std::move(function);
  Values results = context.map_tiles(c.b(), context.mesh, std::move(body), operands);
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i] = sum_of_terms(c.frame, results[i], outputs[i].terms);
  }
  return results;
}

/// The index of the device, row-major over the mesh.
Values partition_id(Context& c) {
  const ModuleContext& context = c.frame.context();
  c.need(context.mesh.is_in_order(), "devices that are not in order");
  ir::Builder& b = c.b();
  ValueId index = ops::scalar(b, 0, DType::i32);
  for (const MeshAxis& axis : context.mesh.axes()) {
    const ValueId size = ops::scalar(b, static_cast<double>(axis.size), DType::i32);
    index = ops::mul(b, index, size);
    if (axis.size == 1) continue;
    c.need(std::ranges::find(context.manual, axis) != context.manual.end(),
           "the index of a device along axes that are not mapped");
    index = ops::add(b, index, ops::axis_index(b, {.name = axis.name, .size = axis.size}));
  }
  return {ops::convert(b, index, DType::u32)};
}

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

/// The axes that a collective exchanges data along, major first: groups must be all devices that
/// differ in nothing but these.
Axes exchanged_axes(Context& c) {
  const ModuleContext& context = c.frame.context();
  const Mesh& mesh = context.mesh;
  const std::vector<Ints> groups = rows_of(c, "replica_groups");
  const char* const reason = "groups that are not all devices along some axes";
  c.need(!groups.empty() && !groups[0].empty(), reason);
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
    c.need(std::ranges::find(context.manual, named) != context.manual.end(),
           "an exchange along axes that are not mapped");
  }
  c.need(count == static_cast<std::int64_t>(groups[0].size()), reason);
  c.need(count * static_cast<std::int64_t>(groups.size()) == mesh.num_devices(), reason);
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
      c.need(coordinates(mesh, group[i]) == expected, reason);
    }
  }
  return axes;
}

std::int64_t size_of(const Axes& axes) {
  std::int64_t count = 1;
  for (const ops::NamedAxis& axis : axes) count *= axis.size;
  return count;
}

/// The values of all devices along the axes, stacked along a new dimension 0.
ValueId gathered(ir::Builder& b, ValueId x, const Axes& axes) {
  Shape shape = b.type(x).shape;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) x = ops::axis_gather(b, x, *axis);
  shape.insert(shape.begin(), size_of(axes));
  return ops::reshape(b, x, std::move(shape));
}

/// [n, a.., d, b..] -> [a.., n * d, b..]; d is dimension `dim`.
ValueId joined(Context& c, ValueId x, std::int64_t dim) {
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
         "a dimension that the devices do not divide");
  shape[at] /= count;
  shape.insert(shape.begin() + dim, count);
  Ints order = {dim};
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(shape.size()); ++i) {
    if (i != dim) order.push_back(i);
  }
  return ops::transpose(c.b(), ops::reshape(c.b(), x, std::move(shape)), std::move(order));
}

Values all_reduce(Context& c) {
  const Axes axes = exchanged_axes(c);
  Values results;
  for (const ValueId operand : c.operands) {
    results.push_back(reduced_with(c, gathered(c.b(), operand, axes), c.region(0), {0}));
  }
  return results;
}

Values all_gather(Context& c) {
  const Axes axes = exchanged_axes(c);
  Values results;
  const std::int64_t dim = c.integer("all_gather_dim");
  for (const ValueId operand : c.operands) {
    c.need(dim >= 0 && dim < c.type(operand).rank(), "a dimension that does not exist");
    results.push_back(joined(c, gathered(c.b(), operand, axes), dim));
  }
  return results;
}

/// Slice j of dimension 0 goes to device j along the axes; slice i of the result comes from there.
ValueId exchanged(Context& c, ValueId parts, const Axes& axes, bool is_pinned) {
  ir::Builder& b = c.b();
  const Shape shape = c.type(parts).shape;
  // One axis after the other, each of which is moved to the front in turn.
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
  const Axes axes = exchanged_axes(c);
  const ValueId parts = divided(c, c.operand(0), c.integer("scatter_dimension"), size_of(axes));
  return {reduced_with(c, exchanged(c, parts, axes, false), c.region(0), {0})};
}

Values all_to_all(Context& c) {
  const Axes axes = exchanged_axes(c);
  const std::int64_t split = c.integer("split_dimension");
  const std::int64_t concat = c.integer("concat_dimension");
  Values results;
  for (const ValueId operand : c.operands) {
    c.need(concat >= 0 && concat < c.type(operand).rank(), "a dimension that does not exist");
    const ValueId parts = divided(c, operand, split, size_of(axes));
    // Pinned, because the program says which device does which part of the work.
    results.push_back(joined(c, exchanged(c, parts, axes, true), concat));
  }
  return results;
}

/// Where devices send to. Devices that differ along other axes only do the same.
struct Route {
  Axes axes;     // along which data moves
  Ints sources;  // per index along these, row-major: the index that it receives from, or -1
};

std::vector<std::size_t> moving_axes(const Mesh& mesh, const std::vector<Ints>& pairs) {
  std::vector<std::size_t> result;
  for (std::size_t k = 0; k < mesh.axes().size(); ++k) {
    const auto moves = [&](const Ints& pair) {
      return coordinates(mesh, pair[0])[k] != coordinates(mesh, pair.back())[k];
    };
    if (std::ranges::any_of(pairs, moves)) result.push_back(k);
  }
  return result;
}

std::optional<Route> route_along(Context& c, const std::vector<Ints>& pairs,
                                 const std::vector<std::size_t>& along) {
  const Mesh& mesh = c.frame.context().mesh;
  Route route;
  for (const std::size_t k : along) {
    route.axes.push_back({.name = mesh.axes()[k].name, .size = mesh.axes()[k].size});
  }
  const std::int64_t count = size_of(route.axes);
  route.sources.assign(static_cast<std::size_t>(count), -1);
  const auto index_of = [&](std::int64_t device) {
    const Ints at = coordinates(mesh, device);
    std::int64_t index = 0;
    for (const std::size_t k : along) index = index * mesh.axes()[k].size + at[k];
    return index;
  };
  for (const Ints& pair : pairs) {
    std::int64_t& source = route.sources[static_cast<std::size_t>(index_of(pair.back()))];
    if (source >= 0 && source != index_of(pair[0])) return std::nullopt;
    source = index_of(pair[0]);
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
  c.need(route.has_value(), "a device that receives twice");
  for (const ops::NamedAxis& axis : route->axes) {
    const auto is_it = [&](const MeshAxis& each) { return each.name == axis.name; };
    c.need(std::ranges::any_of(c.frame.context().manual, is_it),
           "an exchange along axes that are not mapped");
  }
  return *route;
}

/// Completes sources to a permutation. Empty if a device sends to several.
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

ValueId index_along(ir::Builder& b, const Axes& axes) {
  ValueId index = ops::scalar(b, 0, DType::i32);
  for (const ops::NamedAxis& axis : axes) {
    const ValueId size = ops::scalar(b, static_cast<double>(axis.size), DType::i32);
    index = ops::add(b, ops::mul(b, index, size), ops::axis_index(b, axis));
  }
  return index;
}

/// A number per device along the axes.
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

Values collective_permute(Context& c) {
  ir::Builder& b = c.b();
  const Route route = route_of(c);
  if (route.axes.empty()) return {c.operand(0)};
  const ValueId index = index_along(b, route.axes);
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
  // What nobody sends is zero.
  if (std::ranges::find(route.sources, -1) == route.sources.end()) return {moved};
  const ValueId is_sent = ops::compare(b, "ge", source, ops::scalar(b, 0, DType::i32));
  const ValueId mask = ops::broadcast_scalar(b, is_sent, b.type(moved).shape);
  return {ops::select(b, mask, moved, ops::full_like(b, 0.0, moved))};
}

}  // namespace

const Handlers& manual_handlers() {
  static const Handlers kHandlers = {{"all_gather", all_gather},
                                     {"all_reduce", all_reduce},
                                     {"all_to_all", all_to_all},
                                     {"collective_permute", collective_permute},
                                     {"partition_id", partition_id},
                                     {"reduce_scatter", reduce_scatter},
                                     {"sdy.manual_computation", manual_computation}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
