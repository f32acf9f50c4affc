#include "run/pjrt/elements.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>

#include "base/narrow_numbers.h"

namespace tessera::run::pjrt {

namespace {

struct NarrowType {
  std::string_view name;
  int number;  // in the interface
  unsigned bits = 8;
  bool is_signed = false;
};

constexpr NarrowType kNarrowTypes[] = {
    {"f8E5M2", 16},      {"f8E4M3FN", 17},     {"f8E4M3B11FNUZ", 18}, {"f8E5M2FNUZ", 19},
    {"f8E4M3FNUZ", 20},  {"f8E4M3", 26},       {"f8E3M4", 27},        {"f8E8M0FNU", 28},
    {"f4E2M1FN", 29, 4}, {"i4", 21, 4, true},  {"si4", 21, 4, true},  {"ui4", 22, 4},
    {"i2", 24, 2, true}, {"si2", 24, 2, true}, {"ui2", 25, 2}};

}  // namespace

std::size_t element_bytes(abi::ElementType type) {
  // By number of the type in the interface: none, bool, s8 to s64, u8 to u64, f16, f32, f64, bf16,
  // complex of 64 and 128 bits, five kinds of f8, s4, u4, a type without elements, s2, u2, three
  // more kinds of f8, and f4. Elements of 2 and 4 bits take a byte each.
  constexpr std::size_t kBytes[] = {0,  1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 8,
                                    16, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1};
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
  const auto* const found = std::ranges::find(kNarrowTypes, name, &NarrowType::name);
  if (found == std::end(kNarrowTypes)) throw std::out_of_range(std::string(name));
  return abi::ElementType{found->number};
}

void wrap_elements(abi::ElementType type, std::span<std::byte> bytes) {
  const auto* const found =
      std::ranges::find(kNarrowTypes, static_cast<int>(type), &NarrowType::number);
  if (found == std::end(kNarrowTypes) || found->bits == 8) return;
  for (std::byte& byte : bytes) {
    byte = std::byte{low_bits(std::to_integer<std::uint8_t>(byte), found->bits, found->is_signed)};
  }
}

}  // namespace tessera::run::pjrt
