// Attributes of the dialect sdy: meshes and shardings.
#include "stablehlo/bytecode/nodes.h"

namespace tessera::stablehlo::bytecode {

namespace {

using Kind = Attribute::Kind;

/// Appends a list and notes its length.
void append_list(Nodes& nodes, Cursor& at, Attribute& result) {
  const std::vector<const Attribute*> list = nodes.attributes(at);
  result.numbers.push_back(static_cast<std::int64_t>(list.size()));
  result.items.insert(result.items.end(), list.begin(), list.end());
}

Attribute sharding(Nodes& nodes, Cursor& at, bool has_unreduced, bool has_kind) {
  Attribute result;
  result.kind = Kind::sharding;
  result.items = {nodes.attribute(at)};
  append_list(nodes, at, result);
  append_list(nodes, at, result);
  if (has_unreduced) {
    append_list(nodes, at, result);
  } else {
    result.numbers.push_back(0);
  }
  result.numbers.push_back(has_kind ? at.signed_number() : 0);
  return result;
}

Attribute dimension(Nodes& nodes, Cursor& at) {
  Attribute result;
  result.kind = Kind::dimension;
  result.items = nodes.attributes(at);
  result.numbers = {at.byte()};
  const std::uint64_t priority = at.number();
  result.numbers.push_back((priority & 1U) != 0 ? static_cast<std::int64_t>(priority >> 1U) : -1);
  return result;
}

/// How the dimensions of operands and results share factors. items: operands, then results;
/// numbers: how many operands there are, whether the program itself gives the rule, the number of
/// factors and their sizes, and four lists of factors with their lengths: those that are summed,
/// must be replicated, are permuted, and stop propagation.
Attribute sharding_rule(Nodes& nodes, Cursor& at) {
  Attribute result;
  result.kind = Kind::sharding_rule;
  std::vector<std::int64_t> lists;
  auto append_numbers = [&] {
    const std::vector<std::int64_t> list = Nodes::signed_numbers(at);
    lists.push_back(static_cast<std::int64_t>(list.size()));
    lists.insert(lists.end(), list.begin(), list.end());
  };
  append_numbers();
  append_list(nodes, at, result);
  const std::vector<const Attribute*> results = nodes.attributes(at);
  result.items.insert(result.items.end(), results.begin(), results.end());
  for (int i = 0; i < 4; ++i) append_numbers();
  result.numbers.push_back(at.byte());
  result.numbers.insert(result.numbers.end(), lists.begin(), lists.end());
  return result;
}

Attribute list(Nodes& nodes, Cursor& at, Kind kind) {
  Attribute result;
  result.kind = kind;
  result.items = nodes.attributes(at);
  return result;
}

}  // namespace

Attribute read_sdy_attribute(Nodes& nodes, std::uint64_t code, Cursor& at) {
  Attribute result;
  switch (code) {
    case 0:
      return list(nodes, at, Kind::manual_axes);
    case 1:
      result.kind = Kind::mesh_axis;
      result.text = nodes.tables().string_at(at);
      result.numbers = {at.signed_number()};
      return result;
    case 2:
      result = list(nodes, at, Kind::mesh);
      result.numbers = Nodes::signed_numbers(at);
      return result;
    case 3:
      result.kind = Kind::sub_axis;
      result.numbers = {at.signed_number()};
      result.numbers.push_back(at.signed_number());
      return result;
    case 4:
      result.kind = Kind::axis;
      result.text = nodes.tables().string_at(at);
      if (const Attribute* part = nodes.optional_attribute(at)) result.items = {part};
      return result;
    case 5:
      return dimension(nodes, at);
    case 6:
      return sharding(nodes, at, false, false);
    case 8:
      result.kind = Kind::factors;
      result.numbers = Nodes::signed_numbers(at);
      return result;
    case 9:
      return list(nodes, at, Kind::factors);
    case 10:
      return sharding_rule(nodes, at);
    case 11:
      return list(nodes, at, Kind::axes);
    case 15:
      return sharding(nodes, at, true, false);
    case 17:
      return sharding(nodes, at, true, true);
    case 7:
    case 16:
      return list(nodes, at, Kind::shardings);
    default:
      fail_unknown("attribute " + std::to_string(code) + " of the dialect sdy");
  }
}

}  // namespace tessera::stablehlo::bytecode
