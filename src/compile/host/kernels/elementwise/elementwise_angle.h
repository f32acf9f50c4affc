// Angles of many turns.
#pragma once

#include <cstdint>

namespace tessera::kernels::elementwise {

/// An angle as quadrant * pi / 2 + high + low, where |high| is at most pi / 4 and `low` its
/// rounding error. Only the last two bits of `quadrant` count.
struct ReducedAngle {
  double high = 0;
  double low = 0;
  std::int64_t quadrant = 0;
};

/// For finite x >= 2^20. The result has the same bits on every machine.
ReducedAngle reduce_large_angle(double x);

}  // namespace tessera::kernels::elementwise
