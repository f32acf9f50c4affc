#include "stablehlo/import/importer.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <limits>
#include <set>

#include <tessera/error.h>

#include "ops/stablehlo/writer.h"
#include "stablehlo/bytecode/scalars.h"

namespace tessera::stablehlo {

namespace {

using Kind = Attribute::Kind;

// Calls are inlined, so a small module may describe a huge program.
constexpr std::size_t kMostEquations = 2'000'000;
constexpr int kDeepestCall = 200;

std::string types_text(const bytecode::Module& module, const Operation& op) {
  auto list = [&](const std::vector<ValueNumber>& values) {
    std::string text = "(";
    for (const ValueNumber value : values) {
      if (text.size() > 1) text += ", ";
      text += bytecode::plain_text(*module.value_types[value]);
    }
    return text + ")";
  };
  return list(op.operands) + " -> " + list(op.results);
}

std::optional<DType> dtype_of_name(std::string_view name) {
  for (const DType dtype : kAllDTypes) {
    if (ops::hlo::type_text({dtype, {}}) == "tensor<" + std::string(name) + ">") return dtype;
  }
  return std::nullopt;
}

const Handler* find_handler(std::string_view kind) {
  for (const Handlers* family :
       {&elementwise_handlers(), &shape_handlers(), &reduction_handlers(), &window_handlers(),
        &fourier_handlers(), &index_handlers(), &control_handlers(), &manual_handlers(),
        &collective_handlers(), &generator_handlers(), &linear_algebra_handlers(),
        &token_handlers()}) {
    const auto found = family->find(kind);
    if (found != family->end()) return &found->second;
  }
  return nullptr;
}

Span line_of(const ModuleContext& context, const Operation& op) {
  const Span line = bytecode::line_of(op.location);
  return line.file.empty() ? context.call_line : line;
}

/// Constants in the region and in the functions that it calls.
void collect_constants(const ModuleContext& context, const Region& region,
                       std::set<const Operation*>& seen, std::vector<const Operation*>& constants) {
  for (const Operation& op : region.operations) {
    const auto is_same = [&](const Operation* other) {
      return other->find("value") == op.find("value");
    };
    if (is_dense(op) && std::ranges::none_of(constants, is_same)) constants.push_back(&op);
    for (const Region& inner : op.regions) collect_constants(context, inner, seen, constants);
    for (const char* name : {"callee", "decomposition"}) {
      const Attribute* callee = op.find(name);
      if (callee == nullptr) continue;
      const auto found = context.functions.find(callee->text);
      if (found == context.functions.end() || !seen.insert(found->second).second) continue;
      for (const Region& inner : found->second->regions) {
        collect_constants(context, inner, seen, constants);
      }
    }
  }
}

/// Values that the region uses and does not define.
void collect_values(const Region& region, std::set<ValueNumber>& inside,
                    std::vector<ValueNumber>& used) {
  inside.insert(region.arguments.begin(), region.arguments.end());
  for (const Operation& op : region.operations) {
    for (const ValueNumber value : op.operands) {
      if (!inside.contains(value) && std::ranges::find(used, value) == used.end()) {
        used.push_back(value);
      }
    }
    for (const Region& inner : op.regions) collect_values(inner, inside, used);
    inside.insert(op.results.begin(), op.results.end());
  }
}

}  // namespace

void fail_unsupported(const ModuleContext& context, const Operation& op,
                      const std::string& reason) {
  throw UserError({.what = "stablehlo: this use of " + std::string(op.name) + " is not supported",
                   .where = line_of(context, op),
                   .found = reason + ", " + types_text(context.module, op),
                   .wanted = "the operations that docs/stablehlo.md lists",
                   .cure = "rewrite this line of the program with other functions"});
}

std::string_view kind_of(const Operation& op) {
  std::string_view name = op.name;
  if (!name.starts_with("vhlo.")) return name;
  name.remove_prefix(5);
  return name.substr(0, name.rfind("_v"));
}

const Operation* maker_of(const Region& region, ValueNumber value) {
  for (const Operation& op : region.operations) {
    if (std::ranges::find(op.results, value) != op.results.end()) return &op;
  }
  return nullptr;
}

std::string_view text_of(const Operation& op, std::string_view attribute) {
  const Attribute* found = op.find(attribute);
  return found == nullptr ? std::string_view() : found->text;
}

const Attribute* entry_of(const Attribute& dictionary, std::string_view name) {
  for (std::size_t i = 0; i + 1 < dictionary.items.size(); i += 2) {
    if (dictionary.items[i]->text == name) return dictionary.items[i + 1];
  }
  return nullptr;
}

std::int64_t setting_of(Context& c, std::string_view name) {
  const Attribute* const value = entry_of(c.attribute("mhlo.backend_config"), name);
  if (value == nullptr || value->kind != Attribute::Kind::integer) {
    c.unsupported("no setting " + std::string(name));
  }
  return value->numbers[0];
}

Operation call_of_decomposition(const ModuleContext& context, const Operation& composite) {
  const Attribute* function = composite.find("decomposition");
  if (function == nullptr) fail_unsupported(context, composite, "no decomposition");
  Operation call = composite;
  call.name = "vhlo.call_v1";
  call.properties = {{"callee", function}};
  return call;
}

bool is_complex(const bytecode::Type& type) {
  return type.kind == bytecode::Type::Kind::tensor &&
         type.types[0]->kind == bytecode::Type::Kind::complex;
}

[[noreturn]] void fail_dynamic(const ModuleContext& context, const Operation& op,
                               const bytecode::Type& type) {
  throw UserError({.what = "stablehlo: the shapes of the program are not fixed",
                   .where = line_of(context, op),
                   .found = "a value of type " + bytecode::plain_text(type),
                   .wanted = "a program for arrays of certain shapes",
                   .cure = "export it with arguments of fixed shapes, without "
                           "jax.export.symbolic_shape"});
}

Type type_of(const ModuleContext& context, ValueNumber value, const Operation& op) {
  const bytecode::Type& type = *context.module.value_types[value];
  if (type.name == "token") return token_type();
  const bool is_array = type.kind == bytecode::Type::Kind::tensor;
  const bool has_parts = is_complex(type);
  const bytecode::Type* element = is_array ? type.types[0] : nullptr;
  if (has_parts) element = element->types[0];
  const std::optional<DType> dtype = dtype_of_name(is_array ? element->name : "");
  if (!dtype) fail_unsupported(context, op, "the type " + bytecode::plain_text(type));
  for (const std::int64_t size : type.shape) {
    if (size < 0) fail_dynamic(context, op, type);
  }
  Type result{.dtype = *dtype, .shape = type.shape};
  if (has_parts) result.shape.push_back(2);
  return result;
}

bool is_dense(const Operation& op) {
  if (kind_of(op) != "constant") return false;
  const Attribute* value = op.find("value");
  if (value == nullptr || value->kind != Kind::tensor) return false;
  const bytecode::Elements elements(*value, 0);
  return op.results.size() == 1 && elements.size() > 1 && !elements.is_splat();
}

std::string elements_of(const Attribute& constant, DType dtype) {
  const bytecode::Elements elements(constant, 0);
  const std::size_t width = size_bytes(dtype);
  std::string bytes(static_cast<std::size_t>(elements.size()) * width, '\0');
  for (std::int64_t i = 0; i < elements.size(); ++i) {
    const std::uint64_t bits = elements.bits(i);
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * width, &bits, width);
  }
  return bytes;
}

ValueId as_index(Context& c, ValueId x) {
  const DType dtype = c.type(x).dtype;
  const bool fits = dtype == DType::i32 || size_bytes(dtype) < 4;
  if (fits) return ops::convert(c.b(), x, DType::i32);
  // An index that is out of range must stay out of range.
  using Limits = std::numeric_limits<std::int32_t>;
  x = c.b().emit("min", {}, {x, ops::full_like(c.b(), Limits::max(), x)});
  if (is_signed(dtype)) x = c.b().emit("max", {}, {x, ops::full_like(c.b(), Limits::min(), x)});
  return ops::convert(c.b(), x, DType::i32);
}

Type Context::result(std::size_t i) const {
  need(i < op.results.size(), "too few results");
  return type_of(frame.context(), op.results[i], op);
}

ValueId Context::operand(std::size_t i) const {
  need(i < operands.size(), "too few operands");
  return operands[i];
}

const Region& Context::region(std::size_t i) const {
  need(i < op.regions.size(), "too few regions");
  return op.regions[i];
}

void Context::unsupported(const std::string& reason) const {
  fail_unsupported(frame.context(), op, reason);
}

const Attribute& Context::attribute(std::string_view name) const {
  const Attribute* found = op.find(name);
  if (found == nullptr) unsupported("no attribute " + std::string(name));
  return *found;
}

std::int64_t Context::integer(std::string_view name) const {
  const Attribute& found = attribute(name);
  if (found.kind != Kind::integer) unsupported("no integer attribute " + std::string(name));
  return bytecode::integer_value(bytecode::format_of(found.type->name),
                                 static_cast<std::uint64_t>(found.numbers[0]));
}

bool Context::boolean(std::string_view name) const {
  const Attribute& found = attribute(name);
  return found.kind == Kind::boolean && found.numbers[0] != 0;
}

Ints Context::ints(std::string_view name) const {
  const Attribute& found = attribute(name);
  if (found.kind != Kind::tensor) unsupported("no integer tensor " + std::string(name));
  const bytecode::Elements elements(found, 0);
  need(elements.size() <= 4096, "a list of more than 4096 integers");
  Ints result;
  for (std::int64_t i = 0; i < elements.size(); ++i) {
    result.push_back(bytecode::integer_value(elements.format(), elements.bits(i)));
  }
  return result;
}

std::string_view Context::text(std::string_view name) const { return attribute(name).text; }

ValueId Frame::value(ValueNumber number) const {
  const auto found = values_.find(number);
  if (found == values_.end()) {
    fail_unsupported(context_, context_.module.root, "a value of another function");
  }
  return found->second;
}

void Frame::replace(ValueId from, ValueId to) {
  for (auto& [number, value] : values_) {
    if (value == from) value = to;
  }
}

ValueId Frame::constant(const Attribute* constant) const {
  const auto found = constants_.find(constant);
  if (found == constants_.end()) {
    fail_unsupported(context_, context_.module.root, "a constant that no function uses");
  }
  return found->second;
}

const ir::Equation* Frame::maker_of(ValueId value) {
  const std::vector<ir::Equation>& equations = builder_.function().equations;
  for (auto each = equations.rbegin(); each != equations.rend(); ++each) {
    if (std::ranges::find(each->results, value) != each->results.end()) return &*each;
  }
  return nullptr;
}

Values Frame::block(const Region& region) {
  for (const Operation& op : region.operations) {
    const std::string_view kind = kind_of(op);
    if (kind == "return" || kind == "sdy.return") {
      Values results;
      for (const ValueNumber operand : op.operands) results.push_back(value(operand));
      return results;
    }
    operation(op);
  }
  return {};
}

void Frame::operation(const Operation& op) {
  const Handler* handler = find_handler(kind_of(op));
  if (handler == nullptr) fail_unsupported(context_, op, "an unknown operation");
  if (++context_.equations > kMostEquations) {
    fail_unsupported(context_, op, "calls that make the program too long");
  }
  builder_.set_span(line_of(context_, op));
  Context c{.frame = *this, .op = op, .operands = {}};
  for (const ValueNumber operand : op.operands) c.operands.push_back(value(operand));
  const Values results = (*handler)(c);
  if (results.size() != op.results.size()) c.unsupported("an unexpected number of results");
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (type(results[i]) != type_of(context_, op.results[i], op)) {
      c.unsupported("a result of the type " + to_string(type(results[i])));
    }
    define(op.results[i], results[i]);
  }
}

Values Frame::call(const Operation& function, const Values& arguments, const Operation& caller) {
  const Region& body = function.regions[0];
  if (body.arguments.size() != arguments.size() || depth_ >= kDeepestCall) {
    fail_unsupported(context_, caller,
                     "a call that is nested too deeply or has the wrong number of operands");
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) define(body.arguments[i], arguments[i]);
  // JAX writes some functions only once for all calls; these have no lines of the program.
  const Span outer = context_.call_line;
  const Span line = bytecode::line_of(caller.location);
  if (!line.file.empty()) context_.call_line = line;
  ++depth_;
  Values results = block(body);
  --depth_;
  context_.call_line = outer;
  return results;
}

Frame::Captures Frame::captures_of(const Operation& op) const {
  Captures result;
  std::set<ValueNumber> inside;
  std::set<const Operation*> seen;
  for (const Region& region : op.regions) {
    collect_values(region, inside, result.values);
    collect_constants(context_, region, seen, result.constants);
  }
  result.has_taken = taken.has_value();
  return result;
}

Values Frame::captured(const Captures& captures) const {
  Values result;
  for (const ValueNumber each : captures.values) result.push_back(value(each));
  for (const Operation* each : captures.constants) result.push_back(constant(each->find("value")));
  if (captures.has_taken) result.push_back(taken.value());
  return result;
}

std::shared_ptr<const ir::Function> Frame::nested(const Operation& op, const Region& region,
                                                  const Captures& captures) {
  auto function = std::make_shared<ir::Function>(ir::empty_like(builder_.function()));
  Frame frame(context_, *function);
  frame.depth_ = depth_ + 1;
  for (const ValueNumber each : captures.values) {
    const ValueId input = frame.builder_.add_input(type(value(each)));
    frame.define(each, input);
    const auto splat = splats.find(value(each));
    if (splat != splats.end()) frame.splats[input] = splat->second;
  }
  for (const Operation* each : captures.constants) {
    const Attribute* value = each->find("value");
    frame.constants_[value] = frame.builder_.add_input(type(constant(value)));
  }
  if (captures.has_taken) frame.taken = frame.builder_.add_input({DType::boolean, {}});
  for (const ValueNumber argument : region.arguments) {
    frame.define(argument, frame.builder_.add_input(type_of(context_, argument, op)));
  }
  frame.builder_.set_outputs(frame.block(region));
  return function;
}

}  // namespace tessera::stablehlo
