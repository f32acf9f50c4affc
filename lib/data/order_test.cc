// Compares the order of records with grain's.
#include <algorithm>
#include <cstdio>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include <tessera/data.h>
#include <tessera/error.h>

#include "data/index_shuffle.h"
#include "tests/peers/golden.h"

namespace tessera::data {
namespace {

using Places = std::vector<std::int64_t>;

Places records(const Order& order, std::int64_t first, std::int64_t count) {
  Places result;
  for (std::int64_t i = first; i < first + count; ++i) result.push_back(order.record(i));
  return result;
}

/// The SHA-256 of the values as little-endian i64, in hex, computed by sha256sum of GNU coreutils.
std::string sha256(const Places& values) {
  const std::string path = ::testing::TempDir() + "order.bytes";
  std::FILE* file = std::fopen(path.c_str(), "wb");
  std::fwrite(values.data(), sizeof(values[0]), values.size(), file);
  std::fclose(file);
  std::FILE* pipe = popen(("sha256sum < " + path).c_str(), "r");
  std::string text(64, ' ');
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), pipe), text.size());
  pclose(pipe);
  return text;
}

constexpr Order kCifar = {.num_records = 50000, .is_shuffled = true, .seed = 12, .epochs = endless};

TEST(Order, IsThatOfGrain) {
  const nlohmann::json golden = read_golden("grain_index_sampler.json");
  EXPECT_EQ(records(kCifar, 0, 64), golden.at("first64").get<Places>());
  EXPECT_EQ(sha256(records(kCifar, 0, 50000)),
            golden.at("sha256_all_50000_int64_le").get<std::string>());
}

TEST(Order, HasAnotherPermutationInEachEpoch) {
  const nlohmann::json golden = read_golden("grain_index_sampler.json");
  EXPECT_EQ(records(kCifar, 50000, 64), golden.at("epoch2_first64").get<Places>());
  Places second = records(kCifar, 50000, 50000);
  std::sort(second.begin(), second.end());
  Places all(50000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(second, all);
}

TEST(Order, ShufflesInsideOfAShard) {
  const nlohmann::json golden = read_golden("grain_index_sampler.json");
  Order order = kCifar;
  order.shard = 1;
  order.num_shards = 4;
  EXPECT_EQ(records(order, 0, 64), golden.at("shard1of4_first64").get<Places>());
}

TEST(Order, OfFewRecords) {
  const nlohmann::json golden = read_golden("grain_index_sampler.json");
  const Order seed12{.num_records = 10, .is_shuffled = true, .seed = 12};
  const Order seed0{.num_records = 10, .is_shuffled = true, .seed = 0};
  EXPECT_EQ(records(seed12, 0, 10), golden.at("n10_seed12").get<Places>());
  EXPECT_EQ(records(seed0, 0, 10), golden.at("n10_seed0").get<Places>());
  EXPECT_EQ(records({.num_records = 1, .is_shuffled = true, .seed = 3}, 0, 1), Places{0});
}

TEST(Order, IsAPermutationOfEverySize) {
  for (const std::uint64_t n :
       {1U, 2U, 3U, 4U, 5U, 17U, 256U, 257U, 65535U, 65536U, 65537U, 70000U}) {
    std::vector<bool> seen(n);
    for (std::uint64_t i = 0; i < n; ++i) seen.at(index_shuffle(i, n - 1, 7)) = true;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<std::int64_t>(n)) << n;
  }
}

TEST(Order, ShardsShareAllRecords) {
  for (const std::int64_t n : {7, 8, 9, 100}) {
    std::multiset<std::int64_t> seen;
    std::set<std::uint64_t> keys;
    for (std::int64_t shard = 0; shard < 7; ++shard) {
      const Order order{.num_records = n, .shard = shard, .num_shards = 7};
      EXPECT_EQ(order.size(), order.shard_size());
      for (std::int64_t i = 0; i < order.size(); ++i) {
        seen.insert(order.record(i));
        keys.insert(order.random_key(i));
      }
    }
    EXPECT_EQ(std::ssize(seen), n);
    EXPECT_EQ(std::ssize(std::set(seen.begin(), seen.end())), n);
    EXPECT_EQ(std::ssize(keys), n) << "random numbers of one record are those of another";
  }
}

TEST(Order, SizesDoNotOverflow) {
  EXPECT_EQ(kCifar.size(), INT64_MAX);
  EXPECT_EQ((Order{.num_records = 10, .epochs = INT64_MAX / 2}).size(), INT64_MAX);
  EXPECT_EQ((Order{.num_records = 10, .epochs = 3}).size(), 30);
}

TEST(Order, IsEqualIfAllFieldsAre) {
  const Order order{.num_records = 9, .is_shuffled = true, .seed = 3};
  EXPECT_EQ(order, (Order{.num_records = 9, .is_shuffled = true, .seed = 3}));
  EXPECT_NE(order, (Order{.num_records = 9, .is_shuffled = true, .seed = 4}));
  EXPECT_NE(order, (Order{.num_records = 9, .is_shuffled = true, .seed = 3, .epochs = 2}));
}

TEST(Position, ComesBackFromItsIntegers) {
  const Position position{.place = 130,
                          .order = {.num_records = 100,
                                    .is_shuffled = true,
                                    .seed = 12,
                                    .epochs = 3,
                                    .shard = 1,
                                    .num_shards = 2}};
  EXPECT_EQ(Position::from_integers(position.integers()).integers(), position.integers());
  for (std::size_t i = 0; i < 7; ++i) {
    for (const std::int64_t bad : {std::int64_t{-2}, std::int64_t{1} << 62}) {
      auto integers = position.integers();
      integers[i] = bad;
      if (i == 4 && bad > 0) continue;  // a large number of epochs is valid
      if (i == 1 && bad > 0) continue;
      EXPECT_THROW(Position::from_integers(integers), UserError) << i << " " << bad;
    }
  }
}

}  // namespace
}  // namespace tessera::data
