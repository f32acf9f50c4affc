#include "data/numpy_random.h"

#include <algorithm>
#include <bit>
#include <string>

#include <tessera/error.h>

namespace tessera {

void NumpyRandomState::randint_i32(std::int32_t low, std::int64_t high,
                                   std::span<std::int32_t> out) {
  if (high <= low || high > std::int64_t{1} << 31U) {
    throw UserError({.what = "randint: there is no i32 in the range",
                     .found = "[" + std::to_string(low) + ", " + std::to_string(high) + ")",
                     .wanted = "low < high <= 2147483648",
                     .cure = "pass a `high` above `low`; it is itself never drawn"});
  }
  const auto range = static_cast<std::uint32_t>(high - 1 - low);
  if (range == 0) {  // NumPy draws nothing here
    std::fill(out.begin(), out.end(), low);
    return;
  }
  const std::uint32_t mask = ~std::uint32_t{0} >> static_cast<unsigned>(std::countl_zero(range));
  for (std::int32_t& value : out) {
    std::uint32_t offset = next_u32() & mask;
    while (offset > range) offset = next_u32() & mask;
    value = static_cast<std::int32_t>(low + std::int64_t{offset});
  }
}

}  // namespace tessera
