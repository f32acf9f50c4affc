#include "run/pjrt/elements.h"

#include <tessera/error.h>

namespace tessera::run::pjrt {

std::size_t element_bytes(abi::ElementType type) {
  // By number of the type in the interface: none, bool, s8 to s64, u8 to u64, f16, f32, f64, bf16,
  // complex of 64 and 128 bits, five kinds of f8.
  constexpr std::size_t kBytes[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 8, 16, 1, 1, 1, 1, 1};
  const auto number = static_cast<std::size_t>(type);
  return number < std::size(kBytes) ? kBytes[number] : 0;
}

abi::ElementType element_type(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return abi::ElementType::boolean;
    case DType::i32:
      return abi::ElementType::s32;
    case DType::u32:
      return abi::ElementType::u32;
    case DType::bf16:
      return abi::ElementType::bf16;
    case DType::f32:
      return abi::ElementType::f32;
    case DType::f64:
      return abi::ElementType::f64;
  }
  throw InternalError("a dtype has a type of PJRT");
}

}  // namespace tessera::run::pjrt
