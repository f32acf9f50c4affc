// The generic form of MLIR.
#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "stablehlo/bytecode/module.h"
#include "stablehlo/bytecode/print_attribute.h"

namespace tessera::stablehlo::bytecode {

namespace {

// A constant may be printed as often as the module likes to name it.
constexpr std::size_t kLongestText = std::size_t{1} << 30U;

class Printer {
 public:
  Printer(const Module& module, PrintOptions options) : module_(module), options_(options) {
    names_.resize(module.value_types.size());
    name_all();
  }

  std::string run() {
    operation(module_.root, 0);
    text_ += '\n';
    return std::move(text_);
  }

 private:
  void operation(const Operation& op, std::size_t indent);
  void region(const Region& region, std::size_t indent);
  void name_all();
  void name_values(const Region& region);
  void location(const Attribute* at);
  void types_of(const std::vector<ValueNumber>& values);

  const Module& module_;
  PrintOptions options_;
  std::vector<std::string> names_;
  std::size_t next_value_ = 0;
  std::size_t next_argument_ = 0;
  std::string text_;
};

void Printer::location(const Attribute* at) {
  if (!options_.locations) return;
  text_ += " loc(";
  if (at == nullptr) {
    text_ += "unknown";
  } else {
    append_location(text_, *at);
  }
  text_ += ')';
}

void Printer::types_of(const std::vector<ValueNumber>& values) {
  append_list(text_, values,
              [&](ValueNumber value) { append_type(text_, *module_.value_types[value]); });
}

// As in MLIR, all values of a region get their names before those of the regions inside it, and of
// these the last region comes first.
void Printer::name_all() {
  std::vector<const Region*> rest;
  for (const Region& each : module_.root.regions) rest.push_back(&each);
  while (!rest.empty()) {
    const Region* region = rest.back();
    rest.pop_back();
    name_values(*region);
    for (const Operation& op : region->operations) {
      for (const Region& each : op.regions) rest.push_back(&each);
    }
  }
}

void Printer::name_values(const Region& region) {
  for (const ValueNumber argument : region.arguments) {
    names_[argument] = "%arg" + std::to_string(next_argument_++);
  }
  for (const Operation& op : region.operations) {
    if (op.results.empty()) continue;
    const std::string name = "%" + std::to_string(next_value_++);
    for (std::size_t i = 0; i < op.results.size(); ++i) {
      names_[op.results[i]] = op.results.size() == 1 ? name : name + "#" + std::to_string(i);
    }
  }
}

void Printer::region(const Region& region, std::size_t indent) {
  text_ += "{\n";
  const bool is_empty = region.has_block && region.operations.empty();
  if (!region.arguments.empty() || is_empty) {
    text_.append(indent, ' ') += "^bb0";
    if (!region.arguments.empty()) {
      text_ += '(';
      std::size_t i = 0;
      append_list(text_, region.arguments, [&](ValueNumber argument) {
        text_.append(names_[argument]).append(": ");
        append_type(text_, *module_.value_types[argument]);
        location(region.argument_locations[i++]);
      });
      text_ += ')';
    }
    text_ += ":\n";
  }
  for (const Operation& op : region.operations) {
    text_.append(indent + 2, ' ');
    operation(op, indent + 2);
    text_ += '\n';
  }
  text_.append(indent, ' ') += '}';
}

void Printer::operation(const Operation& op, std::size_t indent) {
  if (text_.size() > kLongestText) fail_damaged(0, "attributes that are repeated without end");
  if (!op.results.empty()) {
    const std::string& name = names_[op.results[0]];
    text_ += name.substr(0, name.find('#'));
    if (op.results.size() > 1) text_ += ":" + std::to_string(op.results.size());
    text_ += " = ";
  }
  text_.append("\"").append(op.name).append("\"(");
  append_list(text_, op.operands, [&](ValueNumber value) { text_ += names_[value]; });
  text_ += ')';
  if (!op.properties.empty()) {
    text_ += " <";
    append_named(text_, op.properties);
    text_ += '>';
  }
  if (!op.regions.empty()) {
    text_ += " (";
    append_list(text_, op.regions, [&](const Region& each) { region(each, indent); });
    text_ += ')';
  }
  if (!op.attributes.empty()) {
    text_ += ' ';
    append_named(text_, op.attributes);
  }
  text_ += " : (";
  types_of(op.operands);
  text_ += ") -> ";
  const bool is_bare =
      op.results.size() == 1 && module_.value_types[op.results[0]]->kind != Type::Kind::function;
  if (!is_bare) text_ += '(';
  types_of(op.results);
  if (!is_bare) text_ += ')';
  location(op.location);
}

}  // namespace

std::string print(const Module& module, PrintOptions options) {
  return Printer(module, options).run();
}

}  // namespace tessera::stablehlo::bytecode
