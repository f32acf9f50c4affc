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

}  // namespace

std::string to_string(const Mesh& mesh, const Attribute& attribute) {
  struct Render {
    const Mesh& mesh;
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return number(value); }
    std::string operator()(const std::string& value) const { return "\"" + value + "\""; }
    std::string operator()(DType value) const { return std::string(name(value)); }
    std::string operator()(const Ints& value) const { return tessera::to_string(value); }
    std::string operator()(const Sharding& value) const {
      return "<" + tessera::to_string(mesh, value) + ">";
    }
  };
  return std::visit(Render{mesh}, attribute);
}

std::string print(const Function& function, const Equation& equation, PrintOptions options) {
  std::string text = joined(equation.results, [&](ValueId id) { return typed(function, id); });
  text += " = " + std::string(op_name(*equation.op));
  if (!equation.attributes.items().empty()) {
    text += "[" +
            joined(equation.attributes.items(),
                   [&](const auto& item) {
                     return item.first + "=" + to_string(function.mesh, item.second);
                   }) +
            "]";
  }
  if (!equation.operands.empty()) text += " " + joined(equation.operands, name_of);
  if (options.spans && !equation.span.file.empty()) text += "  # " + to_string(equation.span);
  return text;
}

std::string print(const Function& function, PrintOptions options) {
  std::string text = "function " + function.name;
  text += "[mesh=\"" + to_string(function.mesh) + "\", grains=" + std::to_string(function.grains);
  text += "](" + joined(function.inputs, [&](ValueId id) { return typed(function, id); }) + ") {\n";
  for (const Equation& equation : function.equations) {
    text += "  " + print(function, equation, options) + "\n";
  }
  return text + "  return " + joined(function.outputs, name_of) + "\n}\n";
}

}  // namespace tessera::ir
