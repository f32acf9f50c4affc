#include <tessera/data.h>
#include <tessera/error.h>

namespace tessera::data {

namespace {

__extension__ using Wide = unsigned __int128;

/// Philox 4x64 with 10 rounds, of the counter (counter, 0, 0, 0) with the key (key, 0): Salmon et
/// al. 2011.
std::array<std::uint64_t, 4> philox(std::uint64_t counter, std::uint64_t key) {
  std::array<std::uint64_t, 4> x = {counter, 0, 0, 0};
  std::uint64_t key0 = key;
  std::uint64_t key1 = 0;
  for (int round = 0; round < 10; ++round) {
    const Wide a = Wide{0xD2E7470EE14C6C93} * x[0];
    const Wide b = Wide{0xCA5A826395121157} * x[2];
    x = {static_cast<std::uint64_t>(b >> 64U) ^ x[1] ^ key0, static_cast<std::uint64_t>(b),
         static_cast<std::uint64_t>(a >> 64U) ^ x[3] ^ key1, static_cast<std::uint64_t>(a)};
    key0 += 0x9E3779B97F4A7C15;
    key1 += 0xBB67AE8584CAA73B;
  }
  return x;
}

}  // namespace

std::uint64_t RecordRandom::next_u64() {
  if (used_ == block_.size()) {
    block_ = philox(++counter_, key_);
    used_ = 0;
  }
  return block_[used_++];
}

std::uint32_t RecordRandom::next_u32() {
  if (half_) return *std::exchange(half_, std::nullopt);
  const std::uint64_t both = next_u64();
  half_ = static_cast<std::uint32_t>(both >> 32U);
  return static_cast<std::uint32_t>(both);
}

double RecordRandom::random() { return static_cast<double>(next_u64() >> 11U) * 0x1p-53; }

std::int64_t RecordRandom::integer(std::int64_t low, std::int64_t high,
                                   std::source_location where) {
  const std::uint64_t distance = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  if (high < low || distance > UINT32_MAX) {
    throw UserError({.what = "RecordRandom::integer: nothing can be drawn from the range",
                     .where = Span(where),
                     .found = "[" + std::to_string(low) + ", " + std::to_string(high) + "]",
                     .wanted = "low <= high <= low + 4294967295",
                     .cure = "pass the smaller number first; both of them can be drawn"});
  }
  if (distance == 0) return low;
  if (distance == UINT32_MAX) return low + next_u32();
  // Lemire's method, as in NumPy: the result is the high word of a product. Products with a low
  // word below the threshold are rejected, since they would bias it.
  const std::uint64_t count = distance + 1;
  std::uint64_t product = next_u32() * count;
  const std::uint64_t threshold = (UINT32_MAX - distance) % count;
  while (static_cast<std::uint32_t>(product) < threshold) product = next_u32() * count;
  return low + static_cast<std::int64_t>(product >> 32U);
}

}  // namespace tessera::data
