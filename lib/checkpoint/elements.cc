#include "checkpoint/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <xxhash.h>

#include <tessera/dlpack.h>
#include <tessera/engine.h>
#include <tessera/error.h>

namespace tessera::checkpoint {

namespace {

/// The part of an array that is hashed at a time.
constexpr std::size_t kHashedAtOnce = 1 << 16;

/// Replaces every NaN by the same one: the bits of a NaN result are not specified, so they must not
/// change a fingerprint.
void unify_nans(DType dtype, std::span<std::byte> bytes) {
  auto unify = [&]<typename T>(T nan) {
    for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
      T value;
      std::memcpy(&value, bytes.data() + at, sizeof(T));
      if (value != value) std::memcpy(bytes.data() + at, &nan, sizeof(T));
    }
  };
  if (dtype == DType::f16) unify(float16(std::numeric_limits<float>::quiet_NaN()));
  if (dtype == DType::bf16) unify(bfloat16(std::numeric_limits<float>::quiet_NaN()));
  if (dtype == DType::f32) unify(std::numeric_limits<float>::quiet_NaN());
  if (dtype == DType::f64) unify(std::numeric_limits<double>::quiet_NaN());
}

void hash_elements(XXH3_state_t* state, const Array& array) {
  const Elements elements(array, std::source_location());
  std::vector<std::byte> block;
  for (std::size_t at = 0; at < elements.bytes().size(); at += kHashedAtOnce) {
    const auto rest = elements.bytes().subspan(at);
    const auto part = rest.first(std::min(kHashedAtOnce, rest.size()));
    block.assign(part.begin(), part.end());
    unify_nans(array.dtype(), block);
    XXH3_128bits_update(state, block.data(), block.size());
  }
}

}  // namespace

void sort_by_name(std::vector<NamedArray>& arrays) {
  std::sort(arrays.begin(), arrays.end(),
            [](const NamedArray& a, const NamedArray& b) { return a.name < b.name; });
}

void check_names(const std::vector<NamedArray>& arrays, const std::string& subject,
                 const std::source_location& where) {
  std::set<std::string> names = {"__metadata__"};
  for (const NamedArray& item : arrays) {
    if (names.insert(item.name).second) continue;
    throw UserError({.what = subject + ": the name of an array is already in use",
                     .where = where,
                     .found = item.name == "__metadata__"
                                  ? "__metadata__, a reserved word of the format"
                                  : item.name + " a second time",
                     .wanted = "different names",
                     .cure = "give each array its own name"});
  }
}

Elements::Elements(const Array& array, const std::source_location& where) {
  const auto size = static_cast<std::size_t>(size_bytes(array.type(where)));
  if (process_count() == 1) {
    shards_ = array.addressable_shards(where);
    if (!shards_.empty() && shards_[0].bytes().size() == size) {
      bytes_ = shards_[0].bytes();
      return;
    }
  }
  copy_.resize(size);
  tessera::detail::copy_to_host(array, array.dtype(where), copy_, where);
  bytes_ = copy_;
}

std::vector<bfloat16> float8_values(const std::string& dtype) {
  const bool has_infinity = dtype == "F8_E5M2";
  if (!has_infinity && dtype != "F8_E4M3") return {};
  const int stored = has_infinity ? 2 : 3;  // bits of the significand
  const int bias = has_infinity ? 15 : 7;
  std::vector<bfloat16> values;
  for (int bits = 0; bits < 256; ++bits) {
    const int magnitude = bits & 0x7F, exponent = magnitude >> stored;
    const int one = 1 << stored, fraction = magnitude & (one - 1);
    double value = exponent == 0 ? std::ldexp(fraction, 1 - bias - stored)
                                 : std::ldexp(one + fraction, exponent - bias - stored);
    constexpr int kInfinity = 0x7C;
    if (has_infinity && magnitude == kInfinity) value = std::numeric_limits<double>::infinity();
    if (has_infinity ? magnitude > kInfinity : magnitude == 0x7F)
      value = std::numeric_limits<double>::quiet_NaN();
    values.emplace_back(bits >= 0x80 ? -value : value);
  }
  return values;
}

std::string fingerprint(std::vector<NamedArray> arrays) {
  sort_by_name(arrays);
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  for (const NamedArray& item : arrays) {
    const std::string head = item.name + " " + to_string(item.array.type()) + "\n";
    XXH3_128bits_update(state, head.data(), head.size());
    hash_elements(state, item.array);
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace tessera::checkpoint
