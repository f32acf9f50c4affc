// Types and attributes of the dialect vhlo.
#include <array>
#include <span>

#include "stablehlo/bytecode/nodes.h"
#include "stablehlo/bytecode/scalars.h"

namespace tessera::stablehlo::bytecode {

namespace {

using Kind = Attribute::Kind;

// By code; empty where a type has parts, or does not exist.
constexpr std::array<std::string_view, 41> kScalars = {
    "i1",       "",         "bf16",     "f16",        "f32",        "f64",
    "f8E4M3FN", "f8E5M2",   "",         "index",      "i4",         "i8",
    "i16",      "i32",      "i64",      "ui4",        "ui8",        "ui16",
    "ui32",     "ui64",     "",         "",           "token",      "",
    "",         "",         "witness",  "f8E4M3FNUZ", "f8E5M2FNUZ", "f8E4M3B11FNUZ",
    "",         "i2",       "ui2",      "none",       "tf31",       "f8E4M3",
    "f8E3M4",   "f4E2M1FN", "f6E2M3FN", "f6E3M2FN",   "f8E8M0FNU"};

struct Enumeration {
  std::uint64_t code;
  std::string_view name;
  std::array<std::string_view, 6> values;
};

constexpr auto kEnumerations = std::to_array<Enumeration>(
    {{3, "comparison_direction_v1", {"EQ", "NE", "GE", "GT", "LE", "LT"}},
     {4,
      "comparison_type_v1",
      {"NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED", "WEAKORDER"}},
     {5,
      "api_version_v1",
      {"API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
       "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"}},
     {7, "fft_type_v1", {"FFT", "IFFT", "RFFT", "IRFFT"}},
     {11, "precision_v1", {"DEFAULT", "HIGH", "HIGHEST"}},
     {12, "rng_algorithm_v1", {"DEFAULT", "THREE_FRY", "PHILOX"}},
     {13, "rng_distribution_v1", {"", "UNIFORM", "NORMAL"}},
     {16, "transpose_v1", {"TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"}},
     {19, "result_accuracy_mode_v1", {"DEFAULT", "HIGHEST", "TOLERANCE"}}});

Type composed(Nodes& nodes, Cursor& at, Type::Kind kind) {
  Type result;
  result.kind = kind;
  if (kind == Type::Kind::tuple || kind == Type::Kind::future) {
    result.types = nodes.types(at);
  } else {
    result.types = {nodes.type(at)};
  }
  return result;
}

Type shaped(Nodes& nodes, Cursor& at, bool has_encoding, Type::Kind kind) {
  Type result;
  result.kind = kind;
  if (has_encoding) result.encoding = nodes.attribute(at);
  result.shape = Nodes::signed_numbers(at);
  result.types = {nodes.type(at)};
  return result;
}

Attribute enumeration(const Enumeration& of, Cursor& at) {
  Attribute result;
  result.kind = Kind::enumeration;
  result.name = of.name;
  const std::size_t offset = at.position();
  const std::uint64_t value = at.number();
  if (value >= of.values.size() || of.values.at(value).empty()) {
    fail_damaged(offset, std::string(of.name) + " " + std::to_string(value));
  }
  result.text = of.values.at(value);
  return result;
}

Attribute dictionary_of_attributes(Nodes& nodes, Cursor& at) {
  Attribute result;
  result.kind = Kind::dictionary;
  const std::size_t count = at.count();
  for (std::size_t i = 0; i < 2 * count; ++i) result.items.push_back(nodes.attribute(at));
  return result;
}

Attribute alias(Cursor& at) {
  Attribute result;
  result.kind = Kind::alias;
  const std::vector<std::int64_t> results = Nodes::signed_numbers(at);
  const std::int64_t operand = at.signed_number();
  const std::vector<std::int64_t> operands = Nodes::signed_numbers(at);
  result.numbers = {operand, static_cast<std::int64_t>(results.size())};
  result.numbers.insert(result.numbers.end(), results.begin(), results.end());
  result.numbers.insert(result.numbers.end(), operands.begin(), operands.end());
  return result;
}

Attribute accuracy(Nodes& nodes, Cursor& at) {
  Attribute result;
  result.kind = Kind::accuracy;
  for (int i = 0; i < 3; ++i) result.numbers.push_back(at.signed_number());
  result.items = {nodes.attribute(at)};
  return result;
}

/// Axes and meshes, where all_reduce and the like name them.
Attribute read_mesh_attribute(Nodes& nodes, std::uint64_t code, Cursor& at) {
  Attribute result;
  switch (code) {
    case 21:
      result.kind = Kind::sub_axis;
      result.numbers = {at.signed_number()};
      result.numbers.push_back(at.signed_number());
      return result;
    case 22:
      result.kind = Kind::axis;
      result.items = {nodes.attribute(at)};
      if (at.number() != 0) result.items.push_back(nodes.attribute(at));
      return result;
    case 23:
      result.kind = Kind::replica_groups;
      result.items = {nodes.attribute(at)};
      result.items.push_back(nodes.attribute(at));
      return result;
    case 24:
      result.kind = Kind::mesh_axis;
      result.items = {nodes.attribute(at)};
      result.numbers = {at.signed_number()};
      return result;
    default:
      result.kind = Kind::mesh;
      result.items = {nodes.attribute(at)};
      if (const Attribute* part = nodes.optional_attribute(at)) result.items.push_back(part);
      return result;
  }
}

}  // namespace

Type read_vhlo_type(Nodes& nodes, std::uint64_t code, Cursor& at) {
  Type result;
  switch (code) {
    case 1:
      return composed(nodes, at, Type::Kind::complex);
    case 8:
      result.kind = Type::Kind::function;
      result.types = nodes.types(at);
      result.results = nodes.types(at);
      return result;
    case 20:
      return shaped(nodes, at, false, Type::Kind::tensor);
    case 21:
      return shaped(nodes, at, true, Type::Kind::tensor);
    case 23:
      return composed(nodes, at, Type::Kind::tuple);
    case 25:
      return composed(nodes, at, Type::Kind::unranked_tensor);
    case 41:
      return shaped(nodes, at, false, Type::Kind::buffer);
    case 42:
      return composed(nodes, at, Type::Kind::future);
    default:
      break;
  }
  if (code >= kScalars.size() || kScalars.at(code).empty()) {
    fail_unknown("type " + std::to_string(code) + " of the dialect vhlo");
  }
  result.name = kScalars.at(code);
  return result;
}

Attribute read_vhlo_attribute(Nodes& nodes, std::uint64_t code, Cursor& at) {
  for (const Enumeration& each : kEnumerations) {
    if (each.code == code) return enumeration(each, at);
  }
  Attribute result;
  switch (code) {
    case 1:
      result.kind = Kind::array;
      result.items = nodes.attributes(at);
      return result;
    case 2:
      result.kind = Kind::boolean;
      result.numbers = {at.number() != 0 ? 1 : 0};
      return result;
    case 6:
      return dictionary_of_attributes(nodes, at);
    case 8:
      return nodes.number(at, Kind::floating);
    case 9:
      return nodes.number(at, Kind::integer);
    case 10:
      return alias(at);
    case 14:
      result.kind = Kind::string;
      result.text = nodes.tables().string_at(at);
      return result;
    case 15:
      return nodes.tensor(at);
    case 17:
      result.kind = Kind::type;
      result.type = nodes.type(at);
      return result;
    case 18:
      result.kind = Kind::bounds;
      result.numbers = Nodes::signed_numbers(at);
      return result;
    case 20:
      return accuracy(nodes, at);
    default:
      break;
  }
  if (code >= 21 && code <= 25) return read_mesh_attribute(nodes, code, at);
  fail_unknown("attribute " + std::to_string(code) + " of the dialect vhlo");
}

}  // namespace tessera::stablehlo::bytecode
