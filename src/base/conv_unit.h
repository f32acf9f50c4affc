// The dot unit of a convolution of bf16.
#pragma once

#include <cstdint>

#include "base/dot_unit.h"

namespace tessera {

/// The unit that multiplies if `unit` is that of the program, for a convolution into this many
/// features per group. With few features, the instructions of the other units leave most of their
/// work unused, and their operands take long to pack: portable is faster, which reads windows in
/// place.
constexpr DotUnit unit_of_convolution(DotUnit unit, std::int64_t features) {
  constexpr std::int64_t kFewestOfPairs = 16, kFewestOfBlocks = 32;
  const std::int64_t fewest = unit == DotUnit::amx_bf16      ? kFewestOfBlocks
                              : unit == DotUnit::avx512_bf16 ? kFewestOfPairs
                                                             : 0;
  return features < fewest ? DotUnit::portable : unit;
}

}  // namespace tessera
