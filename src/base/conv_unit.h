// Which dot unit a bf16 convolution uses.
#pragma once

#include <cstdint>

#include "base/dot_unit.h"

namespace tessera {

/// The unit that multiplies in a convolution with this many output features per group, in a program
/// whose unit is `unit`. With few features, the instructions of the other units do mostly unused
/// work, and packing their operands takes long. The portable unit reads windows in place and is
/// faster then.
constexpr DotUnit unit_of_convolution(DotUnit unit, std::int64_t features) {
  constexpr std::int64_t kFewestOfPairs = 16, kFewestOfBlocks = 32;
  const std::int64_t fewest = unit == DotUnit::amx_bf16      ? kFewestOfBlocks
                              : unit == DotUnit::avx512_bf16 ? kFewestOfPairs
                                                             : 0;
  return features < fewest ? DotUnit::portable : unit;
}

}  // namespace tessera
