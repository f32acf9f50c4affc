// Types, attributes and locations of the dialect builtin.
#include <array>

#include "stablehlo/bytecode/nodes.h"
#include "stablehlo/bytecode/scalars.h"

namespace tessera::stablehlo::bytecode {

namespace {

using Kind = Attribute::Kind;

Type scalar(std::string_view name) {
  Type result;
  result.name = name;
  return result;
}

// Signless, signed, unsigned.
constexpr std::array<std::array<std::string_view, 3>, 8> kIntegers = {{{"i1", "si1", "ui1"},
                                                                       {"i2", "si2", "ui2"},
                                                                       {"i4", "si4", "ui4"},
                                                                       {"i8", "si8", "ui8"},
                                                                       {"i16", "si16", "ui16"},
                                                                       {"i32", "si32", "ui32"},
                                                                       {"i64", "si64", "ui64"},
                                                                       {"i128", "", ""}}};

Type integer_type(std::uint64_t code) {
  const std::uint64_t width = code >> 2U;
  const std::uint64_t sign = code & 3U;
  std::size_t log = 0;
  while (log < kIntegers.size() && std::uint64_t{1} << log != width) ++log;
  if (sign > 2 || log + 1 >= kIntegers.size()) {
    fail_unknown("an integer type of " + std::to_string(width) + " bits");
  }
  return scalar(kIntegers.at(log).at(sign));
}

Type shaped(Nodes& nodes, Cursor& at, bool has_encoding) {
  Type result;
  result.kind = Type::Kind::tensor;
  if (has_encoding) result.encoding = nodes.attribute(at);
  result.shape = Nodes::signed_numbers(at);
  result.types = {nodes.type(at)};
  return result;
}

Attribute dictionary(Nodes& nodes, Cursor& at) {
  Attribute result;
  result.kind = Kind::dictionary;
  const std::size_t count = at.count();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t offset = at.position();
    const Attribute* key = nodes.attribute(at);
    if (key->kind != Kind::string) fail_damaged(offset, "no string where a key is expected");
    result.items.push_back(key);
    result.items.push_back(nodes.attribute(at));
  }
  return result;
}

/// A string is in the table here, not an attribute.
Attribute string(Nodes& nodes, Cursor& at, bool has_type) {
  Attribute result;
  result.kind = Kind::string;
  result.text = nodes.tables().string_at(at);
  if (has_type) result.type = nodes.type(at);
  return result;
}

Attribute symbol(Nodes& nodes, Cursor& at, bool is_nested) {
  Attribute result;
  result.kind = Kind::symbol;
  result.text = nodes.string_attribute(at);
  if (is_nested) result.items = nodes.attributes(at);
  return result;
}

Attribute array_of_scalar(Nodes& nodes, Cursor& at) {
  Attribute result;
  result.kind = Kind::array_of_scalar;
  result.type = nodes.type(at);
  const std::size_t offset = at.position();
  const std::uint64_t count = at.number();
  result.text = at.bytes(at.number());
  const std::size_t width =
      result.type->kind == Type::Kind::scalar ? format_of(result.type->name).bytes() : 0;
  if (width == 0 || result.text.size() % width != 0 || result.text.size() / width != count) {
    fail_damaged(offset, std::to_string(count) + " numbers in " +
                             std::to_string(result.text.size()) + " bytes");
  }
  result.numbers = {static_cast<std::int64_t>(count)};
  return result;
}

Attribute fused_location(Nodes& nodes, Cursor& at, bool has_metadata) {
  Attribute result;
  result.kind = Kind::fused_location;
  result.items = nodes.attributes(at);
  if (has_metadata) result.items.push_back(nodes.attribute(at));
  result.numbers = {has_metadata ? 1 : 0};
  return result;
}

Attribute file_location(Nodes& nodes, Cursor& at, std::size_t numbers) {
  Attribute result;
  result.kind = Kind::file_location;
  result.text = nodes.string_attribute(at);
  for (std::size_t i = 0; i < numbers; ++i) {
    result.numbers.push_back(static_cast<std::int64_t>(at.number()));
  }
  return result;
}

Attribute file_range(Nodes& nodes, Cursor& at) {
  Attribute result;
  result.kind = Kind::file_location;
  result.text = nodes.string_attribute(at);
  const std::size_t count = at.index(5, "the size of a location");
  for (std::size_t i = 0; i < count; ++i) {
    result.numbers.push_back(static_cast<std::int64_t>(at.number()));
  }
  return result;
}

Attribute read_location(Nodes& nodes, std::uint64_t code, Cursor& at) {
  Attribute result;
  switch (code) {
    case 10:
      result.kind = Kind::call_location;
      result.items = {nodes.attribute(at)};
      result.items.push_back(nodes.attribute(at));
      return result;
    case 11:
      return file_location(nodes, at, 2);
    case 12:
      return fused_location(nodes, at, false);
    case 13:
      return fused_location(nodes, at, true);
    case 14:
      result.kind = Kind::name_location;
      result.text = nodes.string_attribute(at);
      result.items = {nodes.attribute(at)};
      return result;
    case 15:
      result.kind = Kind::unknown_location;
      return result;
    default:
      return file_range(nodes, at);
  }
}

}  // namespace

Type read_builtin_type(Nodes& nodes, std::uint64_t code, Cursor& at) {
  Type result;
  switch (code) {
    case 0:
      return integer_type(at.number());
    case 1:
      return scalar("index");
    case 2:
      result.kind = Type::Kind::function;
      result.types = nodes.types(at);
      result.results = nodes.types(at);
      return result;
    case 3:
      return scalar("bf16");
    case 4:
      return scalar("f16");
    case 5:
      return scalar("f32");
    case 6:
      return scalar("f64");
    case 22:
      return scalar("f8E5M2");
    case 23:
      return scalar("f8E4M3");
    case 24:
      return scalar("f8E4M3FN");
    case 25:
      return scalar("f8E5M2FNUZ");
    case 26:
      return scalar("f8E4M3FNUZ");
    case 27:
      return scalar("f8E4M3B11FNUZ");
    case 28:
      return scalar("f8E3M4");
    case 29:
      return scalar("f4E2M1FN");
    case 30:
      return scalar("f6E2M3FN");
    case 31:
      return scalar("f6E3M2FN");
    case 32:
      return scalar("f8E8M0FNU");
    case 9:
      result.kind = Type::Kind::complex;
      result.types = {nodes.type(at)};
      return result;
    case 12:
      return scalar("none");
    case 13:
      return shaped(nodes, at, false);
    case 14:
      return shaped(nodes, at, true);
    case 15:
      result.kind = Type::Kind::tuple;
      result.types = nodes.types(at);
      return result;
    default:
      fail_unknown("type " + std::to_string(code) + " of the dialect builtin");
  }
}

Attribute read_builtin_attribute(Nodes& nodes, std::uint64_t code, Cursor& at) {
  Attribute result;
  switch (code) {
    case 0:
      result.kind = Kind::array;
      result.items = nodes.attributes(at);
      return result;
    case 1:
      return dictionary(nodes, at);
    case 2:
      return string(nodes, at, false);
    case 3:
      return string(nodes, at, true);
    case 4:
      return symbol(nodes, at, false);
    case 5:
      return symbol(nodes, at, true);
    case 6:
      result.kind = Kind::type;
      result.type = nodes.type(at);
      return result;
    case 7:
      return result;  // unit
    case 8:
      return nodes.number(at, Kind::integer);
    case 9:
      return nodes.number(at, Kind::floating);
    case 17:
      return array_of_scalar(nodes, at);
    case 18:
      return nodes.tensor(at);
    default:
      break;
  }
  if ((code >= 10 && code <= 15) || code == 22) return read_location(nodes, code, at);
  fail_unknown("attribute " + std::to_string(code) + " of the dialect builtin");
}

}  // namespace tessera::stablehlo::bytecode
