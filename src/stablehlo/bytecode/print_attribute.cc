#include "stablehlo/bytecode/print_attribute.h"

#include <array>
#include <bit>
#include <cctype>
#include <span>

#include "stablehlo/bytecode/scalars.h"

namespace tessera::stablehlo::bytecode {

namespace {

using Kind = Attribute::Kind;
using Items = std::span<const Attribute* const>;

void append_number(std::string& text, const ScalarFormat& format, std::uint64_t bits) {
  if (format.kind == ScalarKind::floating) {
    text += float_text(format, bits);
  } else if (format.kind == ScalarKind::boolean) {
    text += (bits & 1U) != 0 ? "true" : "false";
  } else if (format.kind == ScalarKind::unsigned_integer) {
    text += std::to_string(static_cast<std::uint64_t>(integer_value(format, bits)));
  } else {
    text += std::to_string(integer_value(format, bits));
  }
}

void append_element(std::string& text, const Elements& elements, std::int64_t i) {
  if (!elements.is_complex()) return append_number(text, elements.format(), elements.bits(i));
  text += '(';
  append_number(text, elements.format(), elements.bits(i, 0));
  text += ',';
  append_number(text, elements.format(), elements.bits(i, 1));
  text += ')';
}

/// The elements of an array of this shape, from `next` on, in brackets.
void append_nested(std::string& text, const Elements& elements, std::span<const std::int64_t> shape,
                   std::int64_t& next) {
  if (shape.empty()) return append_element(text, elements, next++);
  text += '[';
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    if (i > 0) text += ", ";
    append_nested(text, elements, shape.subspan(1), next);
  }
  text += ']';
}

void append_hex(std::string& text, const Elements& elements) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  text += "\"0x";
  const unsigned parts = elements.is_complex() ? 2 : 1;
  for (std::int64_t i = 0; i < elements.size(); ++i) {
    for (unsigned part = 0; part < parts; ++part) {
      const std::uint64_t bits = elements.bits(i, part);
      for (unsigned byte = 0; byte < elements.format().bytes(); ++byte) {
        text += kDigits[bits >> (8 * byte + 4) & 15U];
        text += kDigits[bits >> (8 * byte) & 15U];
      }
    }
  }
  text += '"';
}

void append_dense(std::string& text, const Attribute& constant) {
  constexpr std::int64_t kLongestList = 100;
  const Elements elements(constant, 0);
  text += "dense<";
  if (elements.size() > 0 && (elements.is_splat() || elements.size() == 1)) {
    append_element(text, elements, 0);
  } else if (elements.size() > kLongestList) {
    append_hex(text, elements);
  } else if (elements.size() > 0) {
    std::int64_t next = 0;
    append_nested(text, elements, constant.type->shape, next);
  }
  text += "> : " + plain_text(*constant.type);
}

bool is_identifier(std::string_view word) {
  if (word.empty() || (std::isalpha(static_cast<unsigned char>(word[0])) == 0 && word[0] != '_')) {
    return false;
  }
  for (const char c : word) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '$' && c != '.') {
      return false;
    }
  }
  return true;
}

void append_items(std::string& text, Items items) {
  append_list(text, items, [&](const Attribute* item) { append_attribute(text, *item); });
}

void append_dictionary(std::string& text, const Attribute& attribute) {
  std::vector<NamedAttribute> named;
  for (std::size_t i = 0; i + 1 < attribute.items.size(); i += 2) {
    named.emplace_back(attribute.items[i]->text, attribute.items[i + 1]);
  }
  append_named(text, named);
}

void append_scalar_array(std::string& text, const Attribute& attribute) {
  const ScalarFormat format = format_of(attribute.type->name);
  text += "array<" + plain_text(*attribute.type);
  for (std::size_t i = 0; i < attribute.text.size(); i += format.bytes()) {
    std::uint64_t bits = 0;
    for (unsigned byte = 0; byte < format.bytes(); ++byte) {
      bits |= std::uint64_t{static_cast<std::uint8_t>(attribute.text[i + byte])} << (8 * byte);
    }
    text += i == 0 ? ": " : ", ";
    append_number(text, format, bits);
  }
  text += '>';
}

void append_builtin_number(std::string& text, const Attribute& attribute) {
  const ScalarFormat format = format_of(attribute.type->name);
  append_number(text, format, static_cast<std::uint64_t>(attribute.numbers[0]));
  if (format.kind != ScalarKind::boolean) text += " : " + plain_text(*attribute.type);
}

void append_builtin(std::string& text, const Attribute& attribute) {
  switch (attribute.kind) {
    case Kind::array:
      text += '[';
      append_items(text, attribute.items);
      text += ']';
      break;
    case Kind::dictionary:
      append_dictionary(text, attribute);
      break;
    case Kind::floating:
    case Kind::integer:
      append_builtin_number(text, attribute);
      break;
    case Kind::string:
      append_quoted(text, attribute.text);
      if (attribute.type != nullptr) {
        text += " : ";
        append_type(text, *attribute.type);
      }
      break;
    case Kind::symbol:
      text += '@';
      if (is_identifier(attribute.text)) {
        text += attribute.text;
      } else {
        append_quoted(text, attribute.text);
      }
      for (const Attribute* item : attribute.items) {
        text += "::";
        append_attribute(text, *item);
      }
      break;
    case Kind::tensor:
      append_dense(text, attribute);
      break;
    case Kind::array_of_scalar:
      append_scalar_array(text, attribute);
      break;
    case Kind::type:
      append_type(text, *attribute.type);
      break;
    case Kind::unit:
      text += "unit";
      break;
    case Kind::assembly:
      text += attribute.text;
      break;
    default:
      text += "loc(";
      append_location(text, attribute);
      text += ')';
  }
}

void append_alias(std::string& text, const Attribute& attribute) {
  const std::span<const std::int64_t> lists = std::span(attribute.numbers).subspan(2);
  const auto results = static_cast<std::size_t>(attribute.numbers[1]);
  text += "output_operand_alias_v1<outputTupleIndices = ";
  append_numbers(text, lists.first(results));
  text += ", operandIndex = " + std::to_string(attribute.numbers[0]) + ", operandTupleIndices = ";
  append_numbers(text, lists.subspan(results));
  text += '>';
}

void append_accuracy(std::string& text, const Attribute& attribute) {
  const ScalarFormat format = format_of("f64");
  auto number = [&](std::size_t i) {
    return float_text(format, static_cast<std::uint64_t>(attribute.numbers[i]));
  };
  text += "result_accuracy_v1<atol = " + number(0) + ", rtol = " + number(1) +
          ", ulps = " + std::to_string(attribute.numbers[2]) + ", mode = ";
  append_attribute(text, *attribute.items[0]);
  text += '>';
}

/// Lists of attributes, with the name and brackets of each kind.
void append_vhlo_list(std::string& text, const Attribute& attribute) {
  if (attribute.kind == Kind::array) {
    text += "array_v1<[";
    append_items(text, attribute.items);
    text += "]>";
    return;
  }
  text += "dict_v1<{";
  for (std::size_t i = 0; i + 1 < attribute.items.size(); i += 2) {
    if (i > 0) text += ", ";
    append_attribute(text, *attribute.items[i]);
    text += " = ";
    append_attribute(text, *attribute.items[i + 1]);
  }
  text += "}>";
}

/// Axes and meshes, as `kind<field = value, ...>`.
void append_vhlo_mesh(std::string& text, const Attribute& attribute) {
  std::string_view kind = "sub_axis_info_v1";
  std::array<std::string_view, 2> items = {};
  std::array<std::string_view, 2> numbers = {};
  switch (attribute.kind) {
    case Kind::axis:
      kind = "axis_ref_v1", items = {"name", "sub_axis_info"};
      break;
    case Kind::replica_groups:
      kind = "replica_group_mesh_axes_v1", items = {"mesh", "axes"};
      break;
    case Kind::mesh_axis:
      kind = "mesh_axis_v1", items = {"name"}, numbers = {"size"};
      break;
    case Kind::mesh:
      kind = "mesh_v1", items = {"axes", "device_ids"};
      break;
    default:
      numbers = {"pre_size", "size"};
  }
  text.append(kind) += '<';
  std::string_view comma;
  for (std::size_t i = 0; i < attribute.items.size(); ++i) {
    text.append(comma).append(items.at(i)).append(" = ");
    append_attribute(text, *attribute.items[i]);
    comma = ", ";
  }
  for (std::size_t i = 0; i < attribute.numbers.size(); ++i) {
    text.append(comma).append(numbers.at(i)).append(" = ");
    text += std::to_string(attribute.numbers[i]);
    comma = ", ";
  }
  text += '>';
}

void append_vhlo(std::string& text, const Attribute& attribute) {
  if (attribute.kind == Kind::enumeration) {
    text.append("#vhlo<").append(attribute.name).append(" ").append(attribute.text) += '>';
    return;
  }
  text += "#vhlo.";
  switch (attribute.kind) {
    case Kind::array:
    case Kind::dictionary:
      append_vhlo_list(text, attribute);
      break;
    case Kind::boolean:
      text += attribute.numbers[0] != 0 ? "bool_v1<true>" : "bool_v1<false>";
      break;
    case Kind::floating:
      text += "float_v1<";
      append_number(text, format_of(attribute.type->name),
                    static_cast<std::uint64_t>(attribute.numbers[0]));
      text += " : ";
      append_type(text, *attribute.type);
      text += '>';
      break;
    case Kind::integer:
      text += "integer_v1<";
      append_builtin_number(text, attribute);
      text += '>';
      break;
    case Kind::string:
      text += "string_v1<";
      append_quoted(text, attribute.text);
      text += '>';
      break;
    case Kind::tensor:
      text += "tensor_v1<";
      append_dense(text, attribute);
      text += '>';
      break;
    case Kind::type:
      text += "type_v1<";
      append_type(text, *attribute.type);
      text += '>';
      break;
    case Kind::bounds:
      text += "type_extensions_v1<bounds = ";
      append_numbers(text, attribute.numbers);
      text += '>';
      break;
    case Kind::alias:
      append_alias(text, attribute);
      break;
    case Kind::accuracy:
      append_accuracy(text, attribute);
      break;
    default:
      append_vhlo_mesh(text, attribute);
  }
}

void append_shape(std::string& text, const Type& type) {
  for (const std::int64_t size : type.shape) {
    text += size == kDynamicSize ? "?" : std::to_string(size);
    text += 'x';
  }
}

std::string_view name_of(Type::Kind kind) {
  switch (kind) {
    case Type::Kind::complex:
      return "complex";
    case Type::Kind::tensor:
      return "tensor";
    case Type::Kind::unranked_tensor:
      return "unranked_tensor";
    case Type::Kind::buffer:
      return "buffer";
    case Type::Kind::tuple:
      return "tuple";
    case Type::Kind::future:
      return "future";
    default:
      return "func";
  }
}

void append_type(std::string& text, const Type& type, bool is_plain);

/// vhlo writes `()` for an empty list, inside the parentheses of the inputs too.
void append_function(std::string& text, const Type& type, bool is_plain) {
  const bool is_vhlo = type.dialect == Dialect::vhlo && !is_plain;
  auto append = [&](const std::vector<const Type*>& types) {
    if (is_vhlo && types.empty()) text += "()";
    append_list(text, types, [&](const Type* part) { append_type(text, *part, is_plain); });
  };
  text += '(';
  append(type.types);
  text += ") -> ";
  const bool is_bare =
      is_vhlo || (type.results.size() == 1 && type.results[0]->kind != Type::Kind::function);
  if (!is_bare) text += '(';
  append(type.results);
  if (!is_bare) text += ')';
}

/// With the dialect of each type, or without any.
void append_type(std::string& text, const Type& type, bool is_plain) {
  const bool is_vhlo = type.dialect == Dialect::vhlo && !is_plain;
  if (is_vhlo) text += "!vhlo.";
  if (type.dialect == Dialect::stablehlo && !is_plain) text += "!stablehlo.";
  if (type.kind == Type::Kind::scalar) {
    text += is_vhlo && type.name == "i1" ? std::string_view("bool") : type.name;
    if (is_vhlo) text += "_v1";
    return;
  }
  if (type.kind == Type::Kind::function && !is_vhlo) return append_function(text, type, is_plain);
  text.append(name_of(type.kind)).append(is_vhlo ? "_v1<" : "<");
  if (type.kind == Type::Kind::function) {
    append_function(text, type, is_plain);
  } else {
    append_shape(text, type);
    append_list(text, type.types, [&](const Type* part) { append_type(text, *part, is_plain); });
  }
  if (type.encoding != nullptr) {
    text += ", ";
    append_attribute(text, *type.encoding);
  }
  text += '>';
}

void append_file(std::string& text, const Attribute& location) {
  const std::vector<std::int64_t>& at = location.numbers;
  auto number = [&](std::size_t i) { return std::to_string(at.size() > i ? at[i] : 0); };
  append_quoted(text, location.text);
  text += ":" + number(0) + ":" + number(1);
  if (at.size() == 3) text += " to :" + number(2);
  if (at.size() == 4) text += " to " + number(2) + ":" + number(3);
}

void append_fused(std::string& text, const Attribute& location) {
  Items items = location.items;
  text += "fused";
  if (location.numbers[0] != 0) {
    text += '<';
    append_attribute(text, *items.back());
    text += '>';
    items = items.first(items.size() - 1);
  }
  text += '[';
  append_list(text, items, [&](const Attribute* item) { append_location(text, *item); });
  text += ']';
}

}  // namespace

void append_numbers(std::string& text, std::span<const std::int64_t> numbers) {
  text += '[';
  append_list(text, numbers, [&](std::int64_t number) {
    text += number == kDynamicSize ? "?" : std::to_string(number);
  });
  text += ']';
}

void append_type(std::string& text, const Type& type) { append_type(text, type, false); }

std::string plain_text(const Type& type) {
  std::string text;
  append_type(text, type, true);
  return text;
}

void append_quoted(std::string& text, std::string_view word) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  text += '"';
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\\') {
      text += "\\\\";
    } else if (byte >= 0x20 && byte < 0x7F && c != '"') {
      text += c;
    } else {
      text += '\\';
      text += kDigits[byte / 16];
      text += kDigits[byte % 16];
    }
  }
  text += '"';
}

void append_named(std::string& text, const std::vector<NamedAttribute>& attributes) {
  text += '{';
  append_list(text, attributes, [&](const NamedAttribute& each) {
    if (is_identifier(each.first)) {
      text += each.first;
    } else {
      append_quoted(text, each.first);
    }
    if (each.second->kind == Kind::unit) return;
    text += " = ";
    append_attribute(text, *each.second);
  });
  text += '}';
}

void append_attribute(std::string& text, const Attribute& attribute) {
  switch (attribute.dialect) {
    case Dialect::vhlo:
      return append_vhlo(text, attribute);
    case Dialect::sdy:
      return append_sdy(text, attribute);
    default:
      return append_builtin(text, attribute);
  }
}

void append_location(std::string& text, const Attribute& location) {
  switch (location.kind) {
    case Kind::name_location:
      append_quoted(text, location.text);
      if (location.items[0]->kind != Kind::unknown_location) {
        text += '(';
        append_location(text, *location.items[0]);
        text += ')';
      }
      break;
    case Kind::call_location:
      text += "callsite(";
      append_location(text, *location.items[0]);
      text += " at ";
      append_location(text, *location.items[1]);
      text += ')';
      break;
    case Kind::file_location:
      append_file(text, location);
      break;
    case Kind::fused_location:
      append_fused(text, location);
      break;
    case Kind::unknown_location:
      text += "unknown";
      break;
    default:
      append_attribute(text, location);
  }
}

}  // namespace tessera::stablehlo::bytecode
