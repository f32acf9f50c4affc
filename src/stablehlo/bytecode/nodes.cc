#include "stablehlo/bytecode/nodes.h"

#include <algorithm>

#include "stablehlo/bytecode/scalars.h"

namespace tessera::stablehlo::bytecode {

namespace {

// Code that walks over a node recurses, and visits a shared part each time it is reached.
constexpr std::int64_t kGreatestDepth = 256;
constexpr std::int64_t kMostNodes = 1'000'000;

/// Sets depth and size of `node` from its parts.
template <typename Node>
void measure(Node& node, std::size_t offset) {
  auto add = [&](const auto* part) {
    if (part == nullptr) return;
    node.depth = std::max(node.depth, part->depth + 1);
    node.nodes += part->nodes;
    if (node.depth > kGreatestDepth) {
      fail_damaged(offset, "attributes or types nested more than " +
                               std::to_string(kGreatestDepth) + " deep");
    }
    if (node.nodes > kMostNodes) {
      fail_damaged(offset, "an attribute of more than " + std::to_string(kMostNodes) + " parts");
    }
  };
  if constexpr (std::is_same_v<Node, Type>) {
    for (const Type* part : node.types) add(part);
    for (const Type* part : node.results) add(part);
    add(node.encoding);
  } else {
    add(node.type);
    for (const Attribute* part : node.items) add(part);
  }
}

}  // namespace

Nodes::Nodes(Module& module, const Tables& tables)
    : module_(module),
      tables_(tables),
      types_(tables.types.size()),
      attributes_(tables.attributes.size()) {}

Type Nodes::read_type(const Tables::Entry& entry) {
  Cursor at(tables_.file, entry.begin, entry.begin + entry.size);
  if (!entry.is_binary) fail_unknown("the type " + std::string(at.text().substr(0, 80)));
  const std::uint64_t code = at.number();
  Type result;
  if (entry.dialect == "vhlo") {
    result = read_vhlo_type(*this, code, at);
    result.dialect = Dialect::vhlo;
  } else if (entry.dialect == "builtin") {
    result = read_builtin_type(*this, code, at);
  } else if (entry.dialect == "stablehlo" && code == 0) {
    // Operations of sdy have types that are not versioned; all but this one are those of builtin.
    result.name = "token";
    result.dialect = Dialect::stablehlo;
  } else {
    fail_unknown("a type of the dialect " + std::string(entry.dialect.substr(0, 80)));
  }
  at.expect_end();
  return result;
}

Attribute Nodes::read_attribute(const Tables::Entry& entry) {
  Cursor at(tables_.file, entry.begin, entry.begin + entry.size);
  if (!entry.is_binary) {
    Attribute result;
    result.kind = Attribute::Kind::assembly;
    result.text = at.text();
    return result;
  }
  const std::uint64_t code = at.number();
  Attribute result;
  if (entry.dialect == "vhlo") {
    result = read_vhlo_attribute(*this, code, at);
    result.dialect = Dialect::vhlo;
  } else if (entry.dialect == "builtin") {
    result = read_builtin_attribute(*this, code, at);
  } else if (entry.dialect == "sdy") {
    result = read_sdy_attribute(*this, code, at);
    result.dialect = Dialect::sdy;
  } else {
    fail_unknown("an attribute of the dialect " + std::string(entry.dialect.substr(0, 80)));
  }
  at.expect_end();
  return result;
}

const Type* Nodes::type_numbered(std::uint64_t number, std::size_t offset) {
  if (number >= types_.size()) {
    fail_damaged(offset, "type " + std::to_string(number) + " of " + std::to_string(types_.size()));
  }
  Slot<Type>& slot = types_[number];
  if (slot.node != nullptr) return slot.node;
  if (slot.is_being_read || depth_ > kGreatestDepth) {
    fail_damaged(offset, "a type that contains itself");
  }
  slot.is_being_read = true;
  ++depth_;
  Type node = read_type(tables_.types[number]);
  --depth_;
  measure(node, offset);
  return slot.node = &module_.types.emplace_back(std::move(node));
}

const Attribute* Nodes::attribute_numbered(std::uint64_t number, std::size_t offset) {
  if (number >= attributes_.size()) {
    fail_damaged(offset, "attribute " + std::to_string(number) + " of " +
                             std::to_string(attributes_.size()));
  }
  Slot<Attribute>& slot = attributes_[number];
  if (slot.node != nullptr) return slot.node;
  if (slot.is_being_read || depth_ > kGreatestDepth) {
    fail_damaged(offset, "an attribute that contains itself");
  }
  slot.is_being_read = true;
  ++depth_;
  Attribute node = read_attribute(tables_.attributes[number]);
  --depth_;
  measure(node, offset);
  return slot.node = &module_.attributes.emplace_back(std::move(node));
}

const Type* Nodes::type(Cursor& at) {
  const std::size_t offset = at.position();
  return type_numbered(at.number(), offset);
}

const Attribute* Nodes::attribute(Cursor& at) {
  const std::size_t offset = at.position();
  return attribute_numbered(at.number(), offset);
}

const Attribute* Nodes::optional_attribute(Cursor& at) {
  const std::size_t offset = at.position();
  const std::uint64_t code = at.number();
  return (code & 1U) != 0 ? attribute_numbered(code >> 1U, offset) : nullptr;
}

std::vector<const Type*> Nodes::types(Cursor& at) {
  std::vector<const Type*> result(at.count());
  for (const Type*& each : result) each = type(at);
  return result;
}

std::vector<const Attribute*> Nodes::attributes(Cursor& at) {
  std::vector<const Attribute*> result(at.count());
  for (const Attribute*& each : result) each = attribute(at);
  return result;
}

std::vector<std::int64_t> Nodes::signed_numbers(Cursor& at) {
  std::vector<std::int64_t> result(at.count());
  for (std::int64_t& each : result) each = at.signed_number();
  return result;
}

Attribute Nodes::number(Cursor& at, Attribute::Kind kind) {
  Attribute result;
  result.kind = kind;
  result.type = type(at);
  result.numbers = {read_scalar(*result.type, at)};
  return result;
}

Attribute Nodes::tensor(Cursor& at) {
  Attribute result;
  result.kind = Attribute::Kind::tensor;
  const std::size_t offset = at.position();
  result.type = type(at);
  if (result.type->kind != Type::Kind::tensor) fail_damaged(offset, "a constant without a shape");
  result.text = at.bytes(at.number());
  (void)Elements(result, offset);  // checks the size
  return result;
}

std::string_view Nodes::string_attribute(Cursor& at) {
  const std::size_t offset = at.position();
  const Attribute* result = attribute(at);
  if (result->kind != Attribute::Kind::string)
    fail_damaged(offset, "no string where one is expected");
  return result->text;
}

}  // namespace tessera::stablehlo::bytecode
