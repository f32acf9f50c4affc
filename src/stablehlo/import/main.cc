#include <numeric>

#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

using Kind = Attribute::Kind;

/// Attribute `name` of argument or result `i`, of the list in `attributes`.
const Attribute* listed(const Operation& function, const char* attributes, std::size_t i,
                        std::string_view name) {
  const Attribute* list = function.find(attributes);
  if (list == nullptr || list->kind != Kind::array || i >= list->items.size()) return nullptr;
  const Attribute& dictionary = *list->items[i];
  for (std::size_t j = 0; j + 1 < dictionary.items.size(); j += 2) {
    if (dictionary.items[j]->text == name) return dictionary.items[j + 1];
  }
  return nullptr;
}

void collect_functions(ModuleContext& context) {
  for (const Region& region : context.module.root.regions) {
    for (const Operation& op : region.operations) {
      const Attribute* name = op.find("sym_name");
      if (kind_of(op) != "func" || name == nullptr) continue;
      if (op.regions.size() != 1) fail_unsupported(context, op, "a function without a body");
      context.functions[name->text] = &op;
    }
  }
}

/// The axes that a value is not summed over yet.
std::vector<MeshAxis> terms_of(const ModuleContext& context, const Attribute* sharding,
                               const Operation& main) {
  std::vector<MeshAxis> terms;
  if (sharding == nullptr || sharding->kind != Kind::sharding) return terms;
  for (const Attribute* axis : unreduced_axes(*sharding)) {
    const std::string name(axis->text);
    if (axis->kind != Kind::axis || !axis->items.empty() || !context.mesh.has_axis(name)) {
      fail_unsupported(context, main, "an unreduced axis of another kind");
    }
    terms.push_back({name, context.mesh.axis_size(name)});
  }
  return terms;
}

Type with_terms(Type type, const std::vector<MeshAxis>& terms) {
  for (std::size_t i = 0; i < terms.size(); ++i) {
    type.shape.insert(type.shape.begin() + static_cast<std::ptrdiff_t>(i), terms[i].size);
  }
  return type;
}

/// The sharding of the array that has the terms in front.
Sharding with_terms(const ModuleContext& context, Sharding sharding,
                    const std::vector<MeshAxis>& terms, const Type& type, const Operation& main) {
  std::vector<SpecEntry> entries;
  for (const MeshAxis& term : terms) entries.emplace_back(term.name);
  const Sharding front = to_sharding(context.mesh, PartitionSpec(std::move(entries)), type,
                                     "stablehlo", bytecode::line_of(main.location));
  for (std::size_t i = 0; i < terms.size(); ++i) {
    sharding.dims.insert(sharding.dims.begin() + static_cast<std::ptrdiff_t>(i), front.dims[i]);
  }
  for (std::size_t& dim : sharding.open) dim += terms.size();
  return sharding;
}

/// The results with the shardings that the module states. The first term of a sum is all of it.
void place_results(ModuleContext& context, const Operation& main, Frame& frame, Values& outputs,
                   Imported& result) {
  ir::Builder& b = frame.builder();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Attribute* const sharding = listed(main, "res_attrs", i, "sdy.sharding");
    const std::vector<MeshAxis> terms = terms_of(context, sharding, main);
    result.result_terms.push_back(terms.size());
    if (sharding == nullptr) continue;
    const Type type = frame.type(outputs[i]);
    const Type whole = with_terms(type, terms);
    Sharding placed =
        with_terms(context, sharding_of(context, *sharding, type, main), terms, whole, main);
    if (!terms.empty()) {
      Ints high(whole.shape.size(), 0);
      Shape first = whole.shape;
      for (std::size_t k = 0; k < terms.size(); ++k) {
        first[k] = 1;
        high[k] = terms[k].size - 1;
      }
      outputs[i] = ops::pad(b, ops::reshape(b, outputs[i], first), ops::scalar(b, 0, type.dtype),
                            Ints(high.size(), 0), high);
    }
    outputs[i] = ops::sharding_constraint(b, outputs[i], std::move(placed));
  }
}

void add_arguments(ModuleContext& context, const Operation& main, Frame& frame, Imported& result) {
  const Region& body = main.regions[0];
  for (std::size_t i = 0; i < body.arguments.size(); ++i) {
    const Type type = type_of(context, body.arguments[i], main);
    const Attribute* const sharding = listed(main, "arg_attrs", i, "sdy.sharding");
    const std::vector<MeshAxis> terms = terms_of(context, sharding, main);
    const ValueId input = frame.builder().add_input(with_terms(type, terms));
    ValueId value = input;
    if (sharding != nullptr) {
      Sharding placed = with_terms(context, sharding_of(context, *sharding, type, main), terms,
                                   frame.type(input), main);
      // An input comes as it is: nothing that is found later can split it further.
      placed.open.clear();
      result.function.values[input].sharding = std::move(placed);
    }
    if (!terms.empty()) {
      Ints dims(terms.size());
      std::iota(dims.begin(), dims.end(), 0);
      value = ops::reduce_sum(frame.builder(), input, dims);
    }
    frame.define(body.arguments[i], value);
    result.argument_terms.push_back(terms.size());
    result.donated.push_back(listed(main, "arg_attrs", i, "jax.buffer_donor") != nullptr ||
                             listed(main, "arg_attrs", i, "tf.aliasing_output") != nullptr);
  }
}

void add_constants(ModuleContext& context, const Operation& main, Frame& frame, Imported& result) {
  for (const Operation* constant : frame.captures_of(main).constants) {
    const Type type = type_of(context, constant->results[0], *constant);
    const Attribute* value = constant->find("value");
    if (value->type->shape != type.shape) {
      fail_unsupported(context, *constant, "a constant of another shape");
    }
    frame.define_constant(value, frame.builder().add_input(type));
    result.constants.push_back({type, elements_of(*value, type.dtype)});
  }
}

std::string name_of(const bytecode::Module& module) {
  std::string_view name = text_of(module.root, "sym_name");
  if (name.starts_with("jit_")) name.remove_prefix(4);
  return std::string(name);
}

/// Per result: the argument whose memory it takes, or -1.
std::vector<int> replaced_arguments(const Operation& main, std::size_t results) {
  std::vector<int> replaces(results, -1);
  for (std::size_t i = 0; i < main.regions[0].arguments.size(); ++i) {
    const Attribute* result = listed(main, "arg_attrs", i, "tf.aliasing_output");
    if (result == nullptr || result->kind != Kind::integer) continue;
    const auto number = static_cast<std::uint64_t>(result->numbers[0]);
    if (number < results) replaces[number] = static_cast<int>(i);
  }
  return replaces;
}

}  // namespace

Imported import_module(const bytecode::Module& module, const MapTiles& map_tiles) {
  ModuleContext context{.module = module, .map_tiles = map_tiles};
  collect_functions(context);
  read_mesh(context);
  const auto found = context.functions.find("main");
  if (found == context.functions.end()) {
    fail_unsupported(context, module.root, "a module without the function main");
  }
  const Operation& main = *found->second;
  Imported result;
  result.name = name_of(module);
  result.where = bytecode::line_of(main.location);
  result.function.mesh = context.mesh;
  Frame frame(context, result.function);
  add_arguments(context, main, frame, result);
  add_constants(context, main, frame, result);
  Values outputs = frame.block(main.regions[0]);
  place_results(context, main, frame, outputs, result);
  result.replaces = replaced_arguments(main, outputs.size());
  frame.builder().set_outputs(std::move(outputs));
  return result;
}

}  // namespace tessera::stablehlo
