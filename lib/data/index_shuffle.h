// Permutations whose elements are computed one by one, as grain computes them.
#pragma once

#include <cstdint>

namespace tessera::data {

/// Where the permutation of 0 .. max that belongs to `seed` takes `index`, 0 <= index <= max <
/// 2^62.
std::uint64_t index_shuffle(std::uint64_t index, std::uint64_t max, std::uint32_t seed);

}  // namespace tessera::data
