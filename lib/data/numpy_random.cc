#include "data/numpy_random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include <tessera/data.h>
#include <tessera/error.h>
#include <tessera/shardings.h>

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

struct RandomState::State : NumpyRandomState {
  using NumpyRandomState::NumpyRandomState;
};

RandomState::RandomState(std::uint32_t seed) : state_(std::make_shared<State>(seed)) {}

namespace {

/// A tile of this process. `rest` is the memory of the elements that are still missing.
struct OwnTile {
  std::vector<IndexRange> index;
  std::span<std::byte> rest;
};

/// Whether the tile has a part of the line with this number. A line has all elements along the last
/// dimension; lines are numbered in row-major order.
bool has_part_of(const OwnTile& tile, const Shape& shape, std::int64_t line) {
  for (std::size_t dim = shape.size() - 1; dim-- > 0; line /= shape[dim]) {
    const std::int64_t at = line % shape[dim];
    if (at < tile.index[dim].start || at >= tile.index[dim].limit) return false;
  }
  return true;
}

/// Draws the elements of an array line by line. As each number depends on those before it, every
/// process draws them all.
template <typename T, typename DrawLine>
Array drawn(const Type& type, const NamedSharding& sharding, const std::source_location& where,
            const DrawLine& draw_line) {
  std::vector<OwnTile> tiles;
  Array result = make_array_from_callback(
      type, sharding,
      [&](const std::vector<IndexRange>& index, std::span<std::byte> elements) {
        tiles.push_back({index, elements});
      },
      where);
  const std::int64_t length = type.shape.empty() ? 1 : type.shape.back();
  std::vector<T> line(static_cast<std::size_t>(length));
  const std::int64_t num_lines = length == 0 ? 0 : num_elements(type.shape) / length;
  for (std::int64_t i = 0; i < num_lines; ++i) {
    draw_line(std::span(line));
    for (OwnTile& tile : tiles) {
      if (!type.shape.empty() && !has_part_of(tile, type.shape, i)) continue;
      const IndexRange columns = type.shape.empty() ? IndexRange{0, 1} : tile.index.back();
      const auto part = std::as_bytes(
          std::span(line).subspan(static_cast<std::size_t>(columns.start),
                                  static_cast<std::size_t>(columns.limit - columns.start)));
      std::copy(part.begin(), part.end(), tile.rest.begin());
      tile.rest = tile.rest.subspan(part.size());
    }
  }
  return result;
}

}  // namespace

Array RandomState::standard_normal(const Shape& shape, const NamedSharding& sharding) {
  std::vector<double> values;
  return drawn<float>({DType::f32, shape}, sharding, {}, [&](std::span<float> line) {
    values.resize(line.size());
    state_->standard_normal(values);
    std::copy(values.begin(), values.end(), line.begin());
  });
}

Array RandomState::randint(std::int32_t low, std::int64_t high, const Shape& shape,
                           const NamedSharding& sharding, std::source_location where) {
  state_->randint_i32(low, high, {}, where);  // checks the range, also for an empty array
  return drawn<std::int32_t>(
      {DType::i32, shape}, sharding, where,
      [&](std::span<std::int32_t> line) { state_->randint_i32(low, high, line, where); });
}

}  // namespace data

}  // namespace tessera
