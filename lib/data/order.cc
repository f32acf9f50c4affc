#include <algorithm>
#include <bit>
#include <limits>
#include <random>

#include <tessera/data.h>
#include <tessera/error.h>

#include "data/index_shuffle.h"

namespace tessera::data {

std::uint64_t index_shuffle(std::uint64_t index, std::uint64_t max, std::uint32_t seed) {
  if (max == 0) return 0;
  // grain uses ceil(log2(max)) bits. If max is a power of four, these are too few for max itself:
  // grain then reads one record twice and another one never. All other orders equal grain's.
  const int needed = static_cast<int>(std::bit_width(max));
  const int half = (std::max(16, needed) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << static_cast<unsigned>(half)) - 1;
  std::array<std::uint32_t, 4> keys{};
  std::seed_seq{seed}.generate(keys.begin(), keys.end());
  const auto rotated = [&](std::uint64_t x, int by) {
    return (x << static_cast<unsigned>(by) | x >> static_cast<unsigned>(half - by)) & mask;
  };
  const auto mix = [&](std::uint64_t x) { return (rotated(x, 1) & rotated(x, 8)) ^ rotated(x, 2); };
  // The rounds of the Simon cipher permute the numbers below 2^(2 * half). If the result is above
  // max, permute it again until it is not (cycle walking).
  do {
    std::uint64_t left = index >> static_cast<unsigned>(half) & mask;
    std::uint64_t right = index & mask;
    for (std::size_t i = 0; i < keys.size(); i += 2) {
      left ^= mix(right) ^ (keys[i] & mask);
      right ^= mix(left) ^ (keys[i + 1] & mask);
    }
    index = left << static_cast<unsigned>(half) | right;
  } while (index > max);
  return index;
}

std::int64_t Order::shard_size() const {
  return num_records / num_shards + (shard < num_records % num_shards ? 1 : 0);
}

std::int64_t Order::size() const {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::int64_t per_epoch = shard_size();
  if (per_epoch == 0) return 0;
  return epochs == endless || epochs > kMost / per_epoch ? kMost : epochs * per_epoch;
}

std::int64_t Order::record(std::int64_t place, std::source_location where) const {
  if (place < 0 || place >= size()) {
    throw UserError({.what = "Order: the position is not in the stream",
                     .where = Span(where),
                     .found = std::to_string(place),
                     .wanted = "at least 0 and less than " + std::to_string(size()),
                     .cure = "read positions below size()"});
  }
  const std::int64_t count = shard_size();
  const std::int64_t first =
      num_records / num_shards * shard + std::min(shard, num_records % num_shards);
  if (!is_shuffled) return first + place % count;
  const auto epoch_seed = static_cast<std::uint32_t>(seed + place / count);
  return first + static_cast<std::int64_t>(index_shuffle(static_cast<std::uint64_t>(place % count),
                                                         static_cast<std::uint64_t>(count - 1),
                                                         epoch_seed));
}

std::uint64_t Order::random_key(std::int64_t place) const {
  return static_cast<std::uint64_t>(seed) +
         static_cast<std::uint64_t>(place) * static_cast<std::uint64_t>(num_shards) +
         static_cast<std::uint64_t>(shard);
}

std::array<std::int64_t, 7> Position::integers() const {
  return {place,        order.num_records, order.is_shuffled ? 1 : 0, order.seed,
          order.epochs, order.shard,       order.num_shards};
}

Position Position::from_integers(std::span<const std::int64_t> integers,
                                 std::source_location where) {
  std::string found = std::to_string(integers.size()) + " integers:";
  for (const std::int64_t integer : integers) found += " " + std::to_string(integer);
  const UserError error(
      {.what = "Position: these integers are not a position",
       .where = Span(where),
       .found = found,
       .wanted = "7 integers: position, number of records, 0 or 1, seed, epochs, shard, shards",
       .cure = "pass what Position::integers() returned"});
  if (integers.size() != 7) throw UserError(error);
  const auto& x = integers;
  const Position position{.place = x[0],
                          .order = {.num_records = x[1],
                                    .is_shuffled = x[2] == 1,
                                    .seed = x[3],
                                    .epochs = x[4],
                                    .shard = x[5],
                                    .num_shards = x[6]}};
  const bool is_good = x[1] >= 1 && (x[2] == 0 || x[2] == 1) && x[3] >= 0 && x[3] <= UINT32_MAX &&
                       (x[4] >= 1 || x[4] == endless) && x[5] >= 0 && x[5] < x[6] && x[6] <= x[1];
  if (!is_good || x[0] < 0 || x[0] > position.order.size()) throw UserError(error);
  return position;
}

Reorder shuffle(std::int64_t seed, std::source_location where) {
  if (seed < 0 || seed > UINT32_MAX) {
    throw UserError({.what = "shuffle: the seed does not fit in u32",
                     .where = Span(where),
                     .found = std::to_string(seed),
                     .wanted = "0 to 4294967295",
                     .cure = "pass a smaller number, for example 12"});
  }
  return {.seed = seed, .where = where};
}

Reorder repeat(std::int64_t epochs, std::source_location where) {
  if (epochs < 1 && epochs != endless) {
    throw UserError({.what = "repeat: the number of epochs is not valid",
                     .where = Span(where),
                     .found = std::to_string(epochs),
                     .wanted = "at least 1, or data::endless",
                     .cure = "write data::repeat() for an endless stream"});
  }
  return {.epochs = epochs, .where = where};
}

Reorder shard(std::int64_t index, std::int64_t num_shards, std::source_location where) {
  if (index < 0 || index >= num_shards) {
    throw UserError(
        {.what = "shard: there is no such shard",
         .where = Span(where),
         .found = "shard " + std::to_string(index) + " of " + std::to_string(num_shards),
         .wanted = "0 <= index < num_shards",
         .cure = "count shards from 0: data::shard(process_index(), process_count())"});
  }
  return {.shard = index, .num_shards = num_shards, .where = where};
}

Dataset operator|(const Dataset& dataset, const Reorder& reorder) {
  Order order = dataset.order();
  if (reorder.seed) {
    order.is_shuffled = true;
    order.seed = *reorder.seed;
  }
  if (reorder.epochs) order.epochs = *reorder.epochs;
  if (reorder.shard) {
    order.shard = *reorder.shard;
    order.num_shards = reorder.num_shards;
    if (order.num_records < order.num_shards) {
      throw UserError({.what = "shard: some shards would be empty",
                       .where = Span(reorder.where),
                       .found = std::to_string(order.num_records) + " records in " +
                                std::to_string(order.num_shards) + " shards",
                       .wanted = "at least one record in each shard",
                       .cure = "use fewer shards or more data"});
    }
  }
  return {dataset.source(), order};
}

}  // namespace tessera::data
