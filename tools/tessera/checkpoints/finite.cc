#include "finite.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <span>

#include <tessera/engine.h>
#include <tessera/shardings.h>

namespace tessera::cli {

namespace {

/// Whether an element has all bits of `exponent` set, as NaNs and infinities have.
template <typename Bits>
bool has_all_bits(std::span<const std::byte> bytes, Bits exponent) {
  // No branch in the loop, so that it runs at the speed of memory.
  Bits found = 0;
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits = 0;
    std::memcpy(&bits, bytes.data() + at, sizeof(Bits));
    found = static_cast<Bits>(found | static_cast<Bits>((bits & exponent) == exponent));
  }
  return found != 0;
}

bool is_finite(std::span<const std::byte> bytes, DType dtype) {
  if (dtype == DType::f64) return !has_all_bits<std::uint64_t>(bytes, 0x7ff0'0000'0000'0000U);
  if (dtype == DType::f32) return !has_all_bits<std::uint32_t>(bytes, 0x7f80'0000U);
  if (dtype == DType::f16) return !has_all_bits<std::uint16_t>(bytes, 0x7c00U);
  if (dtype == DType::bf16) return !has_all_bits<std::uint16_t>(bytes, 0x7f80U);
  return true;
}

/// Whether the tiles that this process holds are finite.
bool is_finite(const Array& array) {
  if (!is_float(array.dtype())) return true;
  std::set<const std::byte*> seen;  // devices of one process share the memory of equal tiles
  for (const Shard& shard : array.addressable_shards()) {
    const std::span<const std::byte> bytes = shard.bytes();
    if (seen.insert(bytes.data()).second && !is_finite(bytes, array.dtype())) return false;
  }
  return true;
}

}  // namespace

std::optional<std::string> first_not_finite(const std::vector<checkpoint::NamedArray>& arrays) {
  std::int64_t first = 0;
  while (first < std::ssize(arrays) && is_finite(arrays[static_cast<std::size_t>(first)].array)) {
    ++first;
  }
  const std::vector<std::int64_t> of_all = process_allgather(first);
  first = *std::min_element(of_all.begin(), of_all.end());
  if (first == std::ssize(arrays)) return std::nullopt;
  const checkpoint::NamedArray& found = arrays[static_cast<std::size_t>(first)];
  return found.name + ": " + to_string(found.array.type());
}

}  // namespace tessera::cli
