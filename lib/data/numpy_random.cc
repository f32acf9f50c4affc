#include "data/numpy_random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include <tessera/data.h>
#include <tessera/error.h>

namespace tessera {

void NumpyRandomState::randint_i32(std::int32_t low, std::int64_t high, std::span<std::int32_t> out,
                                   std::source_location where) {
  if (high <= low || high > std::int64_t{1} << 31U) {
    throw UserError({.what = "randint: there is no i32 in the range",
                     .where = Span(where),
                     .found = "[" + std::to_string(low) + ", " + std::to_string(high) + ")",
                     .wanted = "low < high <= 2147483648",
                     .cure = "pass a `high` above `low`; `high` itself is never drawn"});
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

double NumpyRandomState::next_double() {
  const double high = next_u32() >> 5U;
  const double low = next_u32() >> 6U;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

double NumpyRandomState::next_normal() {
  if (second_normal_) return *std::exchange(second_normal_, std::nullopt);
  double x = 0;
  double y = 0;
  double square = 0;
  while (square >= 1.0 || square == 0.0) {
    x = 2.0 * next_double() - 1.0;
    y = 2.0 * next_double() - 1.0;
    square = x * x + y * y;
  }
  const double scale = std::sqrt(-2.0 * std::log(square) / square);
  second_normal_ = scale * x;
  return scale * y;
}

void NumpyRandomState::standard_normal(std::span<double> out) {
  for (double& value : out) value = next_normal();
}

namespace data {

RandomState::RandomState(std::uint32_t seed) : state_(std::make_shared<NumpyRandomState>(seed)) {}

Array RandomState::standard_normal(const Shape& shape) {
  std::vector<double> values(static_cast<std::size_t>(num_elements(shape)));
  state_->standard_normal(values);
  return array(std::vector<float>(values.begin(), values.end()), shape);
}

Array RandomState::randint(std::int32_t low, std::int64_t high, const Shape& shape,
                           std::source_location where) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(num_elements(shape)));
  state_->randint_i32(low, high, values, where);
  return array(values, shape);
}

}  // namespace data

}  // namespace tessera
