#include "profile/hlo_instruction.h"

#include <protozero/pbf_writer.hpp>

#include "ops/host_array.h"
#include "ops/reference/numeric_convert.h"

namespace tessera::profile {

namespace {

using protozero::pbf_writer;
using Numbers = std::vector<std::int64_t>;

/// PrimitiveType of xla_data.proto.
std::int32_t element_type(DType dtype) {
  constexpr std::int32_t kNumbers[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 11, 12};
  static_assert(std::size(kNumbers) == std::size(kAllDTypes));
  return kNumbers[static_cast<std::size_t>(dtype)];
}
constexpr std::int32_t kTuple = 13;

void add_numbers(pbf_writer& to, protozero::pbf_tag_type tag, const Numbers& numbers) {
  if (!numbers.empty()) to.add_packed_int64(tag, numbers.begin(), numbers.end());
}

void add_shape(pbf_writer& to, protozero::pbf_tag_type tag, const Type& type) {
  pbf_writer shape(to, tag);
  shape.add_int32(2, element_type(type.dtype));
  add_numbers(shape, 3, type.shape);
  const std::vector<bool> is_dynamic(type.shape.size(), false);
  if (!is_dynamic.empty()) shape.add_packed_bool(6, is_dynamic.begin(), is_dynamic.end());
  Numbers minor_to_major;
  for (std::int64_t dim = type.rank(); dim-- > 0;) minor_to_major.push_back(dim);
  std::string layout;
  pbf_writer writer(layout);
  add_numbers(writer, 1, minor_to_major);
  shape.add_message(5, layout);  // a scalar has one too, although it is empty
}

void add_shape(pbf_writer& to, protozero::pbf_tag_type tag, const HloInstruction& instruction) {
  if (!instruction.is_tuple) {
    add_shape(to, tag, instruction.types.at(0));
    return;
  }
  pbf_writer shape(to, tag);
  shape.add_int32(2, kTuple);
  for (const Type& type : instruction.types) add_shape(shape, 4, type);
}

/// The field of a LiteralProto that holds the elements of a dtype.
protozero::pbf_tag_type literal_field(DType dtype) {
  constexpr protozero::pbf_tag_type kFields[] = {2, 15, 17, 4, 5, 3, 16, 6, 7, 10, 13, 8, 9};
  static_assert(std::size(kFields) == std::size(kAllDTypes));
  return kFields[static_cast<std::size_t>(dtype)];
}

/// LiteralProto of one element. Fields of 8- and 16-bit numbers are bytes.
void add_literal(pbf_writer& to, const Type& type, double value) {
  pbf_writer literal(to, 8);
  add_shape(literal, 1, Type{type.dtype, {}});
  const protozero::pbf_tag_type field = literal_field(type.dtype);
  ops::dispatch(type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T list[] = {ops::convert_value<T>(value)};
    if constexpr (std::is_same_v<T, bool>) {
      literal.add_packed_bool(field, std::begin(list), std::end(list));
    } else if constexpr (sizeof(T) < 4) {
      literal.add_bytes(field, reinterpret_cast<const char*>(list), sizeof(T));
    } else if constexpr (std::is_same_v<T, float>) {
      literal.add_packed_float(field, std::begin(list), std::end(list));
    } else if constexpr (std::is_same_v<T, double>) {
      literal.add_packed_double(field, std::begin(list), std::end(list));
    } else if constexpr (std::is_signed_v<T>) {
      literal.add_packed_int64(field, std::begin(list), std::end(list));
    } else {
      literal.add_packed_uint64(field, std::begin(list), std::end(list));
    }
  });
}

void add_metadata(pbf_writer& to, const HloInstruction& instruction) {
  pbf_writer metadata(to, 7);
  metadata.add_string(1, instruction.op_type);
  metadata.add_string(2, instruction.op_name);
  metadata.add_string(3, instruction.where.file);
  metadata.add_int32(4, static_cast<std::int32_t>(instruction.where.line));
}

void add_dot(pbf_writer& to, const HloDot& dot) {
  pbf_writer numbers(to, 30);
  add_numbers(numbers, 1, dot.lhs_contract);
  add_numbers(numbers, 2, dot.rhs_contract);
  add_numbers(numbers, 3, dot.lhs_batch);
  add_numbers(numbers, 4, dot.rhs_batch);
}

void add_slices(pbf_writer& to, const HloInstruction& instruction) {
  for (const Numbers& slice : instruction.slices) {
    pbf_writer message(to, 17);
    for (protozero::pbf_tag_type tag = 1; tag <= 3; ++tag) message.add_int64(tag, slice[tag - 1]);
  }
}

void add_groups(pbf_writer& to, const HloInstruction& instruction) {
  for (const Numbers& group : instruction.groups) {
    pbf_writer message(to, 49);
    add_numbers(message, 1, group);
  }
  if (!instruction.is_channel) return;
  to.add_int64(26, instruction.id);
  to.add_bool(71, true);
}

void add_instruction(pbf_writer& to, const HloInstruction& instruction) {
  pbf_writer message(to, 2);
  message.add_string(1, instruction.name);
  message.add_string(2, instruction.opcode);
  add_shape(message, 3, instruction);
  add_metadata(message, instruction);
  if (instruction.has_value) add_literal(message, instruction.types[0], instruction.value);
  if (instruction.parameter >= 0) message.add_int64(9, instruction.parameter);
  if (instruction.opcode == "fusion") message.add_string(11, "kLoop");
  if (instruction.tuple_index >= 0) message.add_int64(13, instruction.tuple_index);
  add_numbers(message, 14, instruction.dimensions);
  add_slices(message, instruction);
  if (!instruction.target.empty()) message.add_string(28, instruction.target);
  if (instruction.opcode == "dot") add_dot(message, instruction.dot);
  message.add_int64(35, instruction.id);
  add_numbers(message, 36, instruction.operands);
  add_numbers(message, 38, instruction.called);
  add_groups(message, instruction);
  if (!instruction.comparison.empty()) message.add_string(63, instruction.comparison);
}

}  // namespace

std::string program_shape(const HloComputation& computation) {
  std::string data;
  pbf_writer writer(data);
  for (const HloInstruction& instruction : computation.instructions) {
    if (instruction.parameter >= 0) add_shape(writer, 1, instruction);
  }
  add_shape(writer, 2, computation.instructions.back());
  for (const HloInstruction& instruction : computation.instructions) {
    if (instruction.parameter >= 0) writer.add_string(3, instruction.name);
  }
  return data;
}

std::string to_message(const HloComputation& computation) {
  std::string data;
  pbf_writer writer(data);
  writer.add_string(1, computation.name);
  for (const HloInstruction& instruction : computation.instructions) {
    add_instruction(writer, instruction);
  }
  writer.add_message(4, program_shape(computation));
  writer.add_int64(5, computation.id);
  writer.add_int64(6, computation.instructions.back().id);
  return data;
}

}  // namespace tessera::profile
