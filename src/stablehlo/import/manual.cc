// Functions of the tiles of one device (shard_map).
#include <algorithm>
#include <utility>

#include "ops/axis/axis.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

using Kind = Attribute::Kind;

std::vector<MeshAxis> axes_of(Context& c, const Attribute& names) {
  c.need(names.kind == Kind::manual_axes, "a list of axes in an unknown form");
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
  TileSpec split;   // per dimension
  Unreduced terms;  // axes along which devices have terms
};

/// The sharding of value `i` in a list of shardings. Tokens are whole.
ManualSharding sharding_of(Context& c, const Attribute& shardings, std::size_t i, ValueNumber value,
                           const std::vector<MeshAxis>& manual) {
  if (is_token(c, value)) return {.split = {{}}, .terms = {}};
  c.need(shardings.kind == Kind::shardings && i < shardings.items.size(), "too few shardings");
  const Attribute& sharding = *shardings.items[i];
  c.need(sharding.kind == Kind::sharding, "a sharding in an unknown form");
  const ModuleContext& context = c.frame.context();
  const auto mesh = context.meshes.find(sharding.items[0]->text);
  c.need(mesh == context.meshes.end() || mesh->second == context.mesh,
         "shardings on different meshes");
  const auto is_manual = [&](std::string_view name) {
    return std::ranges::any_of(manual, [&](const MeshAxis& each) { return each.name == name; });
  };
  ManualSharding result;
  result.terms = unreduced_of(context, sharding, c.op);
  std::erase_if(result.terms.axes, [&](const MeshAxis& axis) { return !is_manual(axis.name); });
  for (const MeshAxis& axis : result.terms.axes) result.split.push_back({axis.name});
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

/// `function` with leading dimensions of size 1 on inputs and outputs, because a device has one
/// term.
ir::Function with_front(const ir::Function& function, const std::vector<ManualSharding>& inputs,
                        const std::vector<ManualSharding>& outputs) {
  ir::Function result = ir::empty_like(function);
  ir::Builder b(result);
  Values values;
  for (std::size_t i = 0; i < function.inputs.size(); ++i) {
    const Type& type = function.type(function.inputs[i]);
    Type given = type;
    if (i < inputs.size()) given.shape.insert(given.shape.begin(), inputs[i].terms.axes.size(), 1);
    values.push_back(ops::reshape(b, b.add_input(given), type.shape));
  }
  Values results = b.inline_function(function, values);
  for (std::size_t i = 0; i < results.size(); ++i) {
    Shape shape = b.type(results[i]).shape;
    shape.insert(shape.begin(), outputs[i].terms.axes.size(), 1);
    results[i] = ops::reshape(b, results[i], std::move(shape));
  }
  b.set_outputs(std::move(results));
  return result;
}

/// The mesh that the shardings of a function of tiles name.
Mesh mesh_of(Context& c) {
  const ModuleContext& context = c.frame.context();
  for (const char* list : {"in_shardings", "out_shardings"}) {
    const Attribute& shardings = c.attribute(list);
    c.need(shardings.kind == Kind::shardings, "shardings in an unknown form");
    for (const Attribute* sharding : shardings.items) {
      if (sharding->kind != Kind::sharding) continue;
      const auto found = context.meshes.find(sharding->items[0]->text);
      if (found != context.meshes.end()) return found->second;
    }
  }
  return context.mesh;
}

Values manual_computation(Context& c) {
  ModuleContext& context = c.frame.context();
  c.need(context.map_tiles != nullptr, "a function that is mapped over devices");
  const Mesh first = std::exchange(context.mesh, mesh_of(c));
  ManualBody body;
  body.axes = axes_of(c, c.attribute("manual_axes"));
  body.where = c.b().span();
  const Frame::Captures captures = c.frame.captures_of(c.op);
  Values operands = c.operands;
  std::vector<ManualSharding> inputs;
  std::vector<ManualSharding> outputs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    inputs.push_back(sharding_of(c, c.attribute("in_shardings"), i, c.op.operands[i], body.axes));
    operands[i] = terms_of(c.frame, operands[i], inputs[i].terms);
    c.need(inputs[i].split.size() == c.type(operands[i]).shape.size(),
           "a sharding of the wrong rank");
    body.inputs.push_back(inputs[i].split);
  }
  for (std::size_t i = 0; i < c.op.results.size(); ++i) {
    outputs.push_back(sharding_of(c, c.attribute("out_shardings"), i, c.op.results[i], body.axes));
    body.outputs.push_back(outputs[i].split);
  }
  const Values captured = c.frame.captured(captures);
  const std::vector<MeshAxis> outer = context.manual;
  context.manual.insert(context.manual.end(), body.axes.begin(), body.axes.end());
  ir::Function function = *c.frame.nested(c.op, c.region(0), captures);
  context.manual = outer;
  c.need(function.outputs.size() == body.outputs.size(), "an unexpected number of results");
  // Captured values come last: they are the same on all devices.
  std::ranges::rotate(function.inputs,
                      function.inputs.begin() + static_cast<std::ptrdiff_t>(captured.size()));
  operands.insert(operands.end(), captured.begin(), captured.end());
  const auto has_terms = [](const ManualSharding& sharding) {
    return !sharding.terms.axes.empty();
  };
  if (std::ranges::any_of(inputs, has_terms) || std::ranges::any_of(outputs, has_terms)) {
    function = with_front(function, inputs, outputs);
  }
  body.function = std::move(function);
  Values results = context.map_tiles(c.b(), context.mesh, std::move(body), operands);
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i] = value_of_terms(c.frame, results[i], outputs[i].terms);
  }
  context.mesh = first;
  return results;
}

/// The index of the device, row-major over the mesh.
Values partition_id(Context& c) {
  const ModuleContext& context = c.frame.context();
  c.need(context.mesh.is_in_order(), "a mesh whose devices are not in order");
  ir::Builder& b = c.b();
  ValueId index = ops::scalar(b, 0, DType::i32);
  for (const MeshAxis& axis : context.mesh.axes()) {
    const ValueId size = ops::scalar(b, static_cast<double>(axis.size), DType::i32);
    index = ops::mul(b, index, size);
    if (axis.size == 1) continue;
    c.need(std::ranges::find(context.manual, axis) != context.manual.end(),
           "a device index along axes that are not manual");
    index = ops::add(b, index, ops::axis_index(b, {.name = axis.name, .size = axis.size}));
  }
  return {ops::convert(b, index, DType::u32)};
}

}  // namespace

const Handlers& manual_handlers() {
  static const Handlers kHandlers = {{"partition_id", partition_id},
                                     {"sdy.manual_computation", manual_computation}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
