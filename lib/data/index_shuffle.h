// Pseudo-random permutations, equal to Grain's, whose elements can be computed one by one.
#pragma once

#include <cstdint>

namespace tessera::data {

/// Element `index` of the permutation of 0 .. max that `seed` determines. Needs
/// 0 <= index <= max < 2^62.
std::uint64_t index_shuffle(std::uint64_t index, std::uint64_t max, std::uint32_t seed);

}  // namespace tessera::data
