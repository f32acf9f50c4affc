// Selects an element type by a dtype that is known at run time.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/types.h>

namespace tessera::kernels {

/// Calls `visit` with a zero of the element type; booleans are bytes. This is for kernels that
/// compute. They never get dtypes of 8 and 16 bits, which are converted to wider dtypes first.
template <typename Visit>
void with_type(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::boolean:
      return visit(std::uint8_t{});
    case DType::i32:
      return visit(std::int32_t{});
    case DType::i64:
      return visit(std::int64_t{});
    case DType::u32:
      return visit(std::uint32_t{});
    case DType::u64:
      return visit(std::uint64_t{});
    case DType::f32:
      return visit(float{});
    case DType::f64:
      return visit(double{});
    default:
      return;
  }
}

/// The same for all dtypes.
template <typename Visit>
void with_element(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::i8:
      return visit(std::int8_t{});
    case DType::i16:
      return visit(std::int16_t{});
    case DType::u8:
      return visit(std::uint8_t{});
    case DType::u16:
      return visit(std::uint16_t{});
    case DType::f16:
      return visit(float16{});
    case DType::bf16:
      return visit(bfloat16{});
    default:
      return with_type(dtype, visit);
  }
}

/// The type in which elements are added and multiplied: unsigned for integers, which wrap, because
/// overflow of signed integers would be undefined; float for half precision.
template <typename T>
using ArithmeticType =
    std::conditional_t<std::is_integral_v<T>,
                       std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>,
                       std::conditional_t<detail::kIsHalf<T>, float, T>>;

}  // namespace tessera::kernels
