#include <charconv>
#include <cmath>

#include "ir/text.h"

namespace tessera::ir {

namespace {

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string typed(const Function& function, ValueId id) {
  const Value& value = function.values[id];
  std::string text = "%" + std::to_string(id) + ": " + to_string(value.type);
  if (value.sharding) text += "<" + tessera::to_string(function.mesh, *value.sharding) + ">";
  return text;
}

template <typename Items, typename Render>
std::string joined(const Items& items, Render render) {
  std::string text;
  for (const auto& item : items) {
    if (!text.empty()) text += ", ";
    text += render(item);
  }
  return text;
}

std::string name_of(ValueId id) { return "%" + std::to_string(id); }

std::string spaces(std::size_t count) { return std::string(count, ' '); }

/// Inputs, equations and outputs; `indent` is the indentation of the line on which the function
/// starts.
std::string definition(const Function& function, PrintOptions options, std::size_t indent);

std::string attribute_text(const Mesh& mesh, const Attribute& attribute, PrintOptions options,
                           std::size_t indent) {
  struct Render {
    const Mesh& mesh;
    PrintOptions options;
    std::size_t indent;
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return number(value); }
    std::string operator()(const std::string& value) const { return "\"" + value + "\""; }
    std::string operator()(DType value) const { return std::string(name(value)); }
    std::string operator()(const Ints& value) const { return tessera::to_string(value); }
    std::string operator()(const Sharding& value) const {
      return "<" + tessera::to_string(mesh, value) + ">";
    }
    std::string operator()(const ShardingWatcher&) const { return "watcher"; }
    std::string operator()(const HostCallback& callback) const {
      if (callback.results.empty()) return "host_callback";
      const auto text = [](const Type& type) { return tessera::to_string(type); };
      return "host_callback(" + joined(callback.results, text) + ")";
    }
    std::string operator()(const Bodies& value) const {
      return "{" +
             joined(value.functions,
                    [&](const auto& body) { return definition(*body, options, indent); }) +
             "}";
    }
  };
  return std::visit(Render{mesh, options, indent}, attribute);
}

std::string equation_text(const Function& function, const Equation& equation, PrintOptions options,
                          std::size_t indent) {
  std::string text = joined(equation.results, [&](ValueId id) { return typed(function, id); });
  text += " = " + std::string(op_name(*equation.op));
  if (!equation.attributes.items().empty()) {
    text += "[" +
            joined(equation.attributes.items(),
                   [&](const auto& item) {
                     return item.first + "=" +
                            attribute_text(function.mesh, item.second, options, indent);
                   }) +
            "]";
  }
  if (!equation.operands.empty()) text += " " + joined(equation.operands, name_of);
  if (options.spans && !equation.span.file.empty()) text += "  # " + to_string(equation.span);
  return text;
}

std::string definition(const Function& function, PrintOptions options, std::size_t indent) {
  std::string text =
      "(" + joined(function.inputs, [&](ValueId id) { return typed(function, id); }) + ") {\n";
  for (const Equation& equation : function.equations) {
    text += spaces(indent + 2) + equation_text(function, equation, options, indent + 2) + "\n";
  }
  const std::string outputs = joined(function.outputs, name_of);
  text += spaces(indent + 2) + "return" + (outputs.empty() ? "" : " ") + outputs + "\n";
  return text + spaces(indent) + "}";
}

}  // namespace

std::string to_string(const Mesh& mesh, const Attribute& attribute) {
  return attribute_text(mesh, attribute, {}, 0);
}

std::string print(const Function& function, const Equation& equation, PrintOptions options) {
  return equation_text(function, equation, options, 0);
}

std::string print(const Function& function, PrintOptions options) {
  std::string text = "function " + function.name + "[mesh=\"" + to_string(function.mesh) +
                     "\", grains=" + std::to_string(function.grains);
  if (function.numerics != Numerics::exact) {
    text += ", numerics=\"" + std::string(tessera::name(function.numerics)) + "\"";
  }
  return text + "]" + definition(function, options, 0) + "\n";
}

}  // namespace tessera::ir
