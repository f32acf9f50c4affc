#include "run/pjrt/elements.h"

#include <iterator>
#include <map>

namespace tessera::run::pjrt {

std::size_t element_bytes(abi::ElementType type) {
  // By number of the type in the interface: none, bool, s8 to s64, u8 to u64, f16, f32, f64, bf16,
  // complex of 64 and 128 bits, five kinds of f8, s4, u4, a type without elements, s2, u2, and
  // three more kinds of f8. Elements of 2 and 4 bits take a byte each.
  constexpr std::size_t kBytes[] = {0,  1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 8,
                                    16, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1};
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

abi::ElementType narrow_type(std::string_view name) {
  static const std::map<std::string_view, int> numbers = {
      {"f8E5M2", 16},     {"f8E4M3FN", 17}, {"f8E4M3B11FNUZ", 18}, {"f8E5M2FNUZ", 19},
      {"f8E4M3FNUZ", 20}, {"i4", 21},       {"si4", 21},           {"ui4", 22},
      {"i2", 24},         {"si2", 24},      {"ui2", 25},           {"f8E4M3", 26},
      {"f8E3M4", 27}};
  return abi::ElementType{numbers.at(name)};
}

void wrap_elements(abi::ElementType type, std::span<std::byte> bytes) {
  const auto wrap_all = [&](unsigned bits, bool is_signed) {
    const unsigned mask = (1U << bits) - 1, sign = is_signed ? 1U << (bits - 1) : 0;
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>(((static_cast<unsigned>(byte) & mask) ^ sign) - sign);
  };
  switch (static_cast<int>(type)) {
    case 21:
      return wrap_all(4, true);
    case 22:
      return wrap_all(4, false);
    case 24:
      return wrap_all(2, true);
    case 25:
      return wrap_all(2, false);
    default:
      return;
  }
}

}  // namespace tessera::run::pjrt
