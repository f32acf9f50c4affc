#include "stablehlo/bytecode/operations.h"

#include <algorithm>
#include <utility>

#include "stablehlo/bytecode/properties.h"

namespace tessera::stablehlo::bytecode {

namespace {

constexpr std::size_t kDeepestRegion = 128;

// Which parts of an operation follow.
enum Part : std::uint8_t {
  kAttributes = 0x01,
  kResults = 0x02,
  kOperands = 0x04,
  kSuccessors = 0x08,
  kRegions = 0x10,
  kUseOrders = 0x20,
  kProperties = 0x40
};

class OperationReader {
 public:
  OperationReader(Module& module, Nodes& nodes) : module_(module), nodes_(nodes) {}

  Operation read_top() {
    Cursor at = nodes_.tables().section(Tables::operations);
    const std::size_t start = at.position();
    // A block of one operation without arguments.
    if (at.number() != 2) fail_damaged(start, "something other than one module");
    scopes_.push_back({});
    Operation result = operation(at);
    at.expect_end();
    if (result.name != "builtin.module") fail_unknown("the operation " + std::string(result.name));
    return result;
  }

 private:
  // The values of a region. Their numbers start after those of the enclosing region, unless values
  // of that region cannot be referred to.
  struct Scope {
    std::uint64_t first = 0;
    std::uint64_t size = 0;
    std::size_t outermost = 0;  // the first scope whose values can be referred to
    std::vector<ValueNumber> defined;
  };

  Operation operation(Cursor& at);
  void properties(Operation& result, bool is_registered, Cursor& at);
  static void separate_properties(Operation& result);
  void regions(Operation& result, Cursor& at);
  Region region(Cursor& at, bool is_isolated);
  void block_arguments(Region& result, Cursor& at);
  void skip_use_orders(Cursor& at, std::size_t values);
  ValueNumber define(const Type* type, std::size_t offset);
  ValueNumber use(Cursor& at);
  std::vector<NamedAttribute> named(const Attribute* dictionary, std::size_t offset);

  Module& module_;
  Nodes& nodes_;
  std::vector<Scope> scopes_;
};

ValueNumber OperationReader::define(const Type* type, std::size_t offset) {
  Scope& scope = scopes_.back();
  if (scope.defined.size() == scope.size) fail_damaged(offset, "more values than declared");
  const auto number = static_cast<ValueNumber>(module_.value_types.size());
  module_.value_types.push_back(type);
  scope.defined.push_back(number);
  return number;
}

ValueNumber OperationReader::use(Cursor& at) {
  const std::size_t offset = at.position();
  const std::uint64_t number = at.number();
  for (std::size_t i = scopes_.size(); i-- > scopes_.back().outermost;) {
    const Scope& scope = scopes_[i];
    if (number >= scope.first && number - scope.first < scope.defined.size()) {
      return scope.defined[number - scope.first];
    }
  }
  fail_damaged(offset, "value " + std::to_string(number) + " used before its definition");
}

// Use orders only matter for rewriting a module in memory.
void OperationReader::skip_use_orders(Cursor& at, std::size_t values) {
  const std::size_t lists = values > 1 ? at.count() : 1;
  for (std::size_t i = 0; i < lists; ++i) {
    if (values > 1) at.number();
    const std::size_t offset = at.position();
    const std::uint64_t code = at.number();
    if (code >> 1U > at.remaining()) fail_damaged(offset, "an order of uses");
    for (std::uint64_t use = 0; use < code >> 1U; ++use) at.number();
  }
}

std::vector<NamedAttribute> OperationReader::named(const Attribute* dictionary,
                                                   std::size_t offset) {
  if (dictionary->kind != Attribute::Kind::dictionary) {
    fail_damaged(offset, "no dictionary where one is expected");
  }
  std::vector<NamedAttribute> result;
  for (std::size_t i = 0; i + 1 < dictionary->items.size(); i += 2) {
    result.emplace_back(dictionary->items[i]->text, dictionary->items[i + 1]);
  }
  return result;
}

void OperationReader::properties(Operation& result, bool is_registered, Cursor& at) {
  const std::vector<Cursor>& table = nodes_.tables().property_table;
  Cursor bytes = table[at.index(table.size(), "properties")];
  if (!is_registered) {
    const std::size_t offset = bytes.position();
    result.properties = named(nodes_.attribute(bytes), offset);
    return;
  }
  std::optional<std::string_view> names = properties_of(result.name);
  if (!names) fail_unknown("the operation " + std::string(result.name));
  while (!names->empty()) {
    std::string_view name = names->substr(0, names->find(' '));
    names->remove_prefix(std::min(names->size(), name.size() + 1));
    const bool is_optional = name.front() == '?';
    if (is_optional) name.remove_prefix(1);
    // Properties that newer versions of sdy have are optional, and come last.
    if (is_optional && bytes.at_end()) break;
    const Attribute* value =
        is_optional ? nodes_.optional_attribute(bytes) : nodes_.attribute(bytes);
    if (value != nullptr) result.properties.emplace_back(name, value);
  }
  bytes.expect_end();
}

// Old files keep all attributes in one dictionary.
void OperationReader::separate_properties(Operation& result) {
  const std::optional<std::string_view> names = properties_of(result.name);
  if (!names) fail_unknown("the operation " + std::string(result.name));
  const std::string list = " " + std::string(*names) + " ";
  std::vector<NamedAttribute> others;
  for (const NamedAttribute& each : result.attributes) {
    const std::string name(each.first);
    const bool is_property = list.find(" " + name + " ") != std::string::npos ||
                             list.find(" ?" + name + " ") != std::string::npos;
    (is_property ? result.properties : others).push_back(each);
  }
  result.attributes = std::move(others);
}

void OperationReader::block_arguments(Region& result, Cursor& at) {
  const std::size_t count = at.count();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t offset = at.position();
    const Attribute* location = nullptr;
    const Type* type = nullptr;
    if (nodes_.tables().version >= 4) {
      const std::uint64_t code = at.number();
      type = nodes_.type_numbered(code >> 1U, offset);
      if ((code & 1U) != 0) location = nodes_.attribute(at);
    } else {
      type = nodes_.type(at);
      location = nodes_.attribute(at);
    }
    result.arguments.push_back(define(type, offset));
    result.argument_locations.push_back(location);
  }
}

Region OperationReader::region(Cursor& at, bool is_isolated) {
  Region result;
  const std::size_t start = at.position();
  const std::uint64_t blocks = at.number();
  if (blocks == 0) return result;
  if (blocks > 1) fail_damaged(start, "a region of " + std::to_string(blocks) + " blocks");
  if (scopes_.size() > kDeepestRegion) {
    fail_damaged(start, "regions nested more than " + std::to_string(kDeepestRegion) + " deep");
  }
  Scope scope;
  scope.size = at.count();
  if (is_isolated) {
    scope.outermost = scopes_.size();
  } else {
    scope.first = scopes_.back().first + scopes_.back().size;
    scope.outermost = scopes_.back().outermost;
  }
  scopes_.push_back(std::move(scope));
  result.has_block = true;
  const std::size_t offset = at.position();
  const std::uint64_t code = at.number();
  if (code >> 1U > at.remaining()) {
    fail_damaged(offset, "a block of " + std::to_string(code >> 1U) + " operations");
  }
  if ((code & 1U) != 0) {
    block_arguments(result, at);
    if (nodes_.tables().version >= 3 && at.byte() != 0) {
      skip_use_orders(at, result.arguments.size());
    }
  }
  for (std::uint64_t i = 0; i < code >> 1U; ++i) result.operations.push_back(operation(at));
  scopes_.pop_back();
  return result;
}

void OperationReader::regions(Operation& result, Cursor& at) {
  const std::size_t offset = at.position();
  const std::uint64_t code = at.number();
  const std::uint64_t count = code >> 1U;
  const bool is_isolated = (code & 1U) != 0;
  if (count > at.remaining()) fail_damaged(offset, std::to_string(count) + " regions");
  if (!is_isolated || nodes_.tables().version < 2) {
    for (std::uint64_t i = 0; i < count; ++i) result.regions.push_back(region(at, is_isolated));
    return;
  }
  // It is in a separate section, so that a reader may skip it.
  const std::uint8_t tag = at.byte();
  const std::uint64_t size = at.number();
  if ((tag & 0x80U) != 0) at.align(at.number());
  Cursor section = at.part(size);
  for (std::uint64_t i = 0; i < count; ++i) result.regions.push_back(region(section, true));
  section.expect_end();
}

Operation OperationReader::operation(Cursor& at) {
  const auto& names = nodes_.tables().operation_names;
  const Tables::OperationName& name = names[at.index(names.size(), "operation")];
  Operation result;
  result.name = name.name;
  const std::size_t start = at.position();
  const std::uint8_t parts = at.byte();
  if ((parts & ~0x7FU) != 0) fail_damaged(start, "an operation with unknown parts");
  result.location = nodes_.attribute(at);
  if ((parts & kAttributes) != 0) {
    const std::size_t offset = at.position();
    result.attributes = named(nodes_.attribute(at), offset);
    if (nodes_.tables().version < 5) separate_properties(result);
  }
  if ((parts & kProperties) != 0) properties(result, name.is_registered, at);
  std::vector<const Type*> types;
  if ((parts & kResults) != 0) types = nodes_.types(at);
  if ((parts & kOperands) != 0) {
    result.operands.resize(at.count());
    for (ValueNumber& operand : result.operands) operand = use(at);
  }
  if ((parts & kSuccessors) != 0) fail_damaged(start, "an operation with successors");
  if ((parts & kUseOrders) != 0) skip_use_orders(at, types.size());
  for (const Type* type : types) result.results.push_back(define(type, start));
  if ((parts & kRegions) != 0) regions(result, at);
  return result;
}

}  // namespace

Operation read_root(Module& module, Nodes& nodes) {
  return OperationReader(module, nodes).read_top();
}

}  // namespace tessera::stablehlo::bytecode
