#include <algorithm>
#include <atomic>
#include <cmath>

#include <tessera/error.h>
#include <tessera/types.h>

#include "base/narrow_numbers.h"

namespace tessera {

namespace {

struct DTypeInfo {
  std::string_view name;
  std::size_t size_bytes;
  bool is_float = false;
  bool is_integer = false;
  bool is_signed = false;
};

const DTypeInfo& info(DType dtype) {
  static constexpr DTypeInfo kInfo[] = {
      {.name = "bool", .size_bytes = 1},
      {.name = "i8", .size_bytes = 1, .is_integer = true, .is_signed = true},
      {.name = "i16", .size_bytes = 2, .is_integer = true, .is_signed = true},
      {.name = "i32", .size_bytes = 4, .is_integer = true, .is_signed = true},
      {.name = "i64", .size_bytes = 8, .is_integer = true, .is_signed = true},
      {.name = "u8", .size_bytes = 1, .is_integer = true},
      {.name = "u16", .size_bytes = 2, .is_integer = true},
      {.name = "u32", .size_bytes = 4, .is_integer = true},
      {.name = "u64", .size_bytes = 8, .is_integer = true},
      {.name = "f16", .size_bytes = 2, .is_float = true},
      {.name = "bf16", .size_bytes = 2, .is_float = true},
      {.name = "f32", .size_bytes = 4, .is_float = true},
      {.name = "f64", .size_bytes = 8, .is_float = true},
  };
  return kInfo[static_cast<std::size_t>(dtype)];
}

/// The f16 number next to a float; ties to even.
std::uint16_t half_of(std::uint32_t bits) {
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t result = 0;
  if (magnitude > 0x7F800000U) {  // NaN
    result = 0x7E00U | (magnitude >> 13 & 0x3FFU);
  } else if (magnitude >= 0x47800000U) {  // from 65536 on
    result = 0x7C00U;
  } else if (magnitude >= 0x38800000U) {  // from 2^-14 on, where halves are normal
    result = (magnitude - 0x38000000U + 0xFFFU + (magnitude >> 13 & 1U)) >> 13;
  } else if (magnitude > 0x33000000U) {  // above 2^-25
    const std::uint32_t shift = 126 - (magnitude >> 23);
    const std::uint32_t fraction = (magnitude & 0x7FFFFFU) | 0x800000U;
    const std::uint32_t rest = fraction & ((1U << shift) - 1);
    const std::uint32_t tie = 1U << (shift - 1);
    result = fraction >> shift;
    if (rest > tie || (rest == tie && (result & 1U) != 0)) ++result;
  }
  return static_cast<std::uint16_t>(sign | result);
}

}  // namespace

bfloat16::bfloat16(double x) : bfloat16(odd_float(x)) {}
float16::float16(float x) : bits_(half_of(std::bit_cast<std::uint32_t>(x))) {}
float16::float16(double x) : float16(odd_float(x)) {}

std::size_t size_bytes(DType dtype) { return info(dtype).size_bytes; }
std::string_view name(DType dtype) { return info(dtype).name; }
std::string_view name(Numerics numerics) {
  switch (numerics) {
    case Numerics::exact:
      return "exact";
    case Numerics::fast:
      return "fast";
    case Numerics::device:
      return "device";
  }
  throw InternalError("numerics have a name");
}
bool is_float(DType dtype) { return info(dtype).is_float; }
bool is_integer(DType dtype) { return info(dtype).is_integer; }
bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
bool is_signed(DType dtype) { return info(dtype).is_signed; }

namespace detail {

std::uint64_t new_identity() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace detail

std::int64_t num_elements(const Shape& shape) {
  std::int64_t count = 1;
  for (std::int64_t size : shape) count *= size;
  return count;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::vector<std::int64_t> row_major_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

std::string to_string(const Type& type) {
  return std::string(name(type.dtype)) + to_string(type.shape);
}

std::int64_t size_bytes(const Type& type) {
  return num_elements(type.shape) * static_cast<std::int64_t>(size_bytes(type.dtype));
}

Span::Span(std::source_location where) : file(where.file_name()), line(where.line()) {}

std::string to_string(const Span& span) {
  return span.file.empty() ? std::string() : span.file + ":" + std::to_string(span.line);
}

}  // namespace tessera
