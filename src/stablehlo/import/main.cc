#include "ops/control/control.h"
#include "stablehlo/complex/pairs.h"
#include "stablehlo/import/importer.h"
#include "stablehlo/narrow/bytes.h"

namespace tessera::stablehlo {

namespace {

using Kind = Attribute::Kind;

/// Attribute `name` of argument or result `i`, of the list in `attributes`.
const Attribute* listed(const Operation& function, const char* attributes, std::size_t i,
                        std::string_view name) {
  const Attribute* list = function.find(attributes);
  if (list == nullptr || list->kind != Kind::array || i >= list->items.size()) return nullptr;
  return entry_of(*list->items[i], name);
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

bool is_complex_value(const ModuleContext& context, ValueNumber value) {
  return is_complex(*context.module.value_types[value]);
}

/// The sharding that an argument or a result has, with the terms in front and the parts of complex
/// numbers at the end. `type`: without terms.
Sharding placed(const ModuleContext& context, const Attribute& stated, Type type, bool has_parts,
                const std::vector<MeshAxis>& terms, const Operation& main) {
  if (has_parts) type.shape.pop_back();
  Sharding sharding = with_terms(context, sharding_of(context, stated, type, main), terms,
                                 with_terms(type, terms), main);
  if (has_parts) sharding.dims.emplace_back();
  return sharding;
}

/// The axes over which an argument or a result has not been reduced.
Unreduced unreduced_over(const ModuleContext& context, const Attribute* sharding,
                         const Operation& main) {
  if (sharding == nullptr) return {};
  return unreduced_of(context, *sharding, main);
}

std::vector<ValueNumber> returned_by(const Operation& main) {
  const auto last = std::ranges::find(main.regions[0].operations, "return", kind_of);
  return last == main.regions[0].operations.end() ? std::vector<ValueNumber>() : last->operands;
}

/// The results with the shardings that the module states.
void place_results(ModuleContext& context, const Operation& main, Frame& frame, Values& outputs,
                   Imported& result) {
  const std::vector<ValueNumber> returned = returned_by(main);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Attribute* const sharding = listed(main, "res_attrs", i, "sdy.sharding");
    const Unreduced terms = unreduced_over(context, sharding, main);
    result.result_terms.push_back({terms.axes.size(), terms.reduction});
    result.result_is_complex.push_back(is_complex_value(context, returned[i]));
    const Attribute* const memory = listed(main, "res_attrs", i, "mhlo.memory_kind");
    result.result_memory_kinds.emplace_back(memory == nullptr ? "" : memory->text);
    if (sharding == nullptr) continue;
    Sharding wanted = placed(context, *sharding, frame.type(outputs[i]),
                             result.result_is_complex[i], terms.axes, main);
    outputs[i] = ops::sharding_constraint(frame.builder(), terms_of(frame, outputs[i], terms),
                                          std::move(wanted));
  }
}

void add_arguments(ModuleContext& context, const Operation& main, Frame& frame, Imported& result) {
  const Region& body = main.regions[0];
  for (std::size_t i = 0; i < body.arguments.size(); ++i) {
    const Type type = type_of(context, body.arguments[i], main);
    const Attribute* const sharding = listed(main, "arg_attrs", i, "sdy.sharding");
    const Unreduced terms = unreduced_over(context, sharding, main);
    const ValueId input = frame.builder().add_input(with_terms(type, terms.axes));
    result.argument_is_complex.push_back(is_complex_value(context, body.arguments[i]));
    if (sharding != nullptr) {
      Sharding given =
          placed(context, *sharding, type, result.argument_is_complex.back(), terms.axes, main);
      // An input comes with the sharding that it has: propagation cannot split it further.
      given.open.clear();
      result.function.values[input].sharding = std::move(given);
    }
    frame.define(body.arguments[i], value_of_terms(frame, input, terms));
    result.argument_terms.push_back({terms.axes.size(), terms.reduction});
    result.donated.push_back(listed(main, "arg_attrs", i, "jax.buffer_donor") != nullptr ||
                             listed(main, "arg_attrs", i, "tf.aliasing_output") != nullptr);
  }
}

void add_constants(ModuleContext& context, const Operation& main, Frame& frame, Imported& result) {
  for (const Operation* constant : frame.captures_of(main).constants) {
    const Type type = type_of(context, constant->results[0], *constant);
    const Attribute* value = constant->find("value");
    if (value->type->shape != type.shape) {
      fail_unsupported(context, *constant,
                       "a constant whose shape differs from that of its result");
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

/// The types of the elements that with_bytes replaces in these values; empty texts for others.
std::vector<std::string> narrow_among(const bytecode::Module& module,
                                      const std::vector<ValueNumber>& values) {
  std::vector<std::string> names;
  for (const ValueNumber value : values) {
    names.emplace_back(narrow_name(*module.value_types[value]));
  }
  return names;
}

/// `given`: the module with these elements.
void note_narrow(const bytecode::Module& given, Imported& result) {
  ModuleContext context{.module = given};
  collect_functions(context);
  const Operation& main = *context.functions.at("main");
  result.argument_narrow = narrow_among(given, main.regions[0].arguments);
  result.result_narrow = narrow_among(given, returned_by(main));
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

Imported import_module(const bytecode::Module& given, const MapTiles& map_tiles,
                       const FindHostCall& find_host_call) {
  const std::optional<bytecode::Module> bytes = with_bytes(given);
  const std::optional<bytecode::Module> pairs = with_pairs(bytes ? *bytes : given);
  const bytecode::Module& module = pairs ? *pairs : bytes ? *bytes : given;
  ModuleContext context{.module = module, .map_tiles = map_tiles, .find_host_call = find_host_call};
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
  note_narrow(given, result);
  result.replaces = replaced_arguments(main, outputs.size());
  frame.builder().set_outputs(std::move(outputs));
  result.function = ops::sum_products_after_loops(std::move(result.function));
  return result;
}

}  // namespace tessera::stablehlo
