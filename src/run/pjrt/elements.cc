#include "run/pjrt/elements.h"

#include <iterator>
#include <map>

namespace tessera::run::pjrt {

std::size_t element_bytes(abi::ElementType type) {
  // By number of the type in the interface: none, bool, s8 to s64, u8 to u64, f16, f32, f64, bf16,
  // complex of 64 and 128 bits, five kinds of f8, five types that have no whole bytes or no
  // elements, and three more kinds of f8.
  constexpr std::size_t kBytes[] = {0,  1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 8,
                                    16, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1};
  const auto number = static_cast<std::size_t>(type);
  return number < std::size(kBytes) ? kBytes[number] : 0;
}

abi::ElementType element_type(DType dtype) {
  using Type = abi::ElementType;
  constexpr Type kTypes[] = {Type::boolean, Type::s8,  Type::s16, Type::s32, Type::s64,
                             Type::u8,      Type::u16, Type::u32, Type::u64, Type::f16,
                             Type::bf16,    Type::f32, Type::f64};
  static_assert(std::size(kTypes) == std::size(kAllDTypes));
  return kTypes[static_cast<std::size_t>(dtype)];
}

abi::ElementType float8_type(std::string_view name) {
  static const std::map<std::string_view, int> numbers = {
      {"f8E5M2", 16},     {"f8E4M3FN", 17}, {"f8E4M3B11FNUZ", 18}, {"f8E5M2FNUZ", 19},
      {"f8E4M3FNUZ", 20}, {"f8E4M3", 26},   {"f8E3M4", 27}};
  return abi::ElementType{numbers.at(name)};
}

}  // namespace tessera::run::pjrt
