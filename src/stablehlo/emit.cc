#include <fmt/format.h>
#include <optional>

#include <tessera/error.h>

#include "ir/text.h"
#include "ops/stablehlo/form.h"
#include "stablehlo/stablehlo.h"

namespace tessera::stablehlo {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;
using ops::hlo::Tiles;
using ops::hlo::Value;
using ops::hlo::Values;
using ops::hlo::Writer;

bool has_shardings(const Function& function) {
  for (const ir::Value& value : function.values) {
    if (!value.sharding.has_value()) return false;
  }
  return true;
}

/// The type of the tiles of a value.
Type tile_type(const Function& function, ValueId id, const Tiles* tiles) {
  const Type& type = function.type(id);
  if (tiles == nullptr) return type;
  return {type.dtype, tiles->layout(function.sharding(id), type.shape).max_tile_shape()};
}

std::string location_of(const Span& span) {
  if (span.file.empty()) return "";
  return fmt::format(" loc({}:{}:0)", ops::hlo::quoted(span.file), span.line);
}

/// Writes the equations of a function and of those nested in it.
class Emitter {
 public:
  Emitter(const Tiles& tiles, const EmitOptions& options) : tiles_(tiles), options_(options) {}

  Values write(Writer& w, const Function& function, const Values& inputs) {
    const Tiles* tiles = has_shardings(function) ? &tiles_ : nullptr;
    std::vector<std::optional<Value>> values(function.values.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) values[function.inputs[i]] = inputs[i];
    for (const Equation& equation : function.equations) {
      w.set_location(location_of(equation.span));
      const Values results = write(w, function, equation, values, tiles);
      for (std::size_t i = 0; i < results.size(); ++i) values[equation.results[i]] = results[i];
    }
    Values outputs;
    for (ValueId id : function.outputs) outputs.push_back(values[id].value());
    return outputs;
  }

 private:
  Values write(Writer& w, const Function& function, const Equation& equation,
               const std::vector<std::optional<Value>>& values, const Tiles* tiles) {
    ops::hlo::FormContext context{
        .w = w,
        .function = function,
        .equation = equation,
        .operands = {},
        .results = {},
        .tiles = tiles,
        .widens_products = options_.widens_products,
        .fuses_attention = options_.fuses_attention,
        .pads_products_from = options_.pads_products_from,
        .call = [this](Writer& inner, const Function& body,
                       const Values& inputs) { return write(inner, body, inputs); },
        .value = [&values](ValueId id) { return values[id].value(); }};
    for (ValueId id : equation.operands) context.operands.push_back(values[id].value());
    for (ValueId id : equation.results) context.results.push_back(tile_type(function, id, tiles));
    Values results = equation.op->stablehlo(context);
    require(results.size() == equation.results.size(), "a form has all results of its op");
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].type == context.results[i]) continue;
      throw InternalError(fmt::format(
          "the form gives {} where the tiles are {}: {}", ops::hlo::type_text(results[i].type),
          ops::hlo::type_text(context.results[i]), ir::print(function, equation)));
    }
    return results;
  }

  const Tiles& tiles_;
  const EmitOptions& options_;
};

/// The attribute of each input: a donated input gives its memory to the first output of its type
/// that has none yet.
std::vector<std::string> donations(const std::vector<Type>& inputs, const Values& outputs,
                                   const EmitOptions& options) {
  std::vector<std::string> attributes(inputs.size());
  std::vector<bool> is_taken(outputs.size(), false);
  for (std::size_t i = 0; i < inputs.size() && i < options.donated.size(); ++i) {
    if (!options.donated[i]) continue;
    attributes[i] = " {jax.buffer_donor = true}";
    for (std::size_t output = 0; output < outputs.size(); ++output) {
      if (is_taken[output] || outputs[output].type != inputs[i]) continue;
      is_taken[output] = true;
      attributes[i] = fmt::format(" {{tf.aliasing_output = {} : i32}}", output);
      break;
    }
  }
  return attributes;
}

}  // namespace

std::string emit(const Function& function, const EmitOptions& options) {
  const Tiles tiles(function.mesh);
  const bool is_partitioned = has_shardings(function);
  std::int64_t counter = 0;
  constexpr std::size_t kIndent = 4;
  Writer w(counter, kIndent);
  std::vector<Type> types;
  Values inputs;
  for (ValueId id : function.inputs) {
    types.push_back(tile_type(function, id, is_partitioned ? &tiles : nullptr));
    inputs.push_back({fmt::format("%arg{}", inputs.size()), types.back()});
  }
  const Values outputs = Emitter(tiles, options).write(w, function, inputs);
  const std::vector<std::string> attributes = donations(types, outputs, options);
  std::string arguments;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    arguments += fmt::format("{}{}: {}{}", i > 0 ? ", " : "", inputs[i].name,
                             ops::hlo::type_text(types[i]), attributes[i]);
  }
  const std::string results = ops::hlo::types_text(outputs);
  return fmt::format(
      "module @tessera attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = {} : i32}} "
      "{{\n  func.func public @main({}) -> ({}) {{\n{}    return{}\n  }}\n}}\n",
      is_partitioned ? tiles.num_devices() : 1, arguments, results, w.text(),
      outputs.empty() ? "" : " " + ops::hlo::names_text(outputs) + " : " + results);
}

}  // namespace tessera::stablehlo
