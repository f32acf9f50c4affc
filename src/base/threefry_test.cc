#include "base/threefry.h"

#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "tests/peers/golden.h"

namespace tessera {
namespace {

using nlohmann::json;
using Words = std::vector<std::uint32_t>;

// The known answer from the paper's library, checked at compile time.
static_assert(threefry2x32({0, 0}, 0, 0) == std::array<std::uint32_t, 2>{0x6B200159U, 0x99BA4EFEU});

/// The words of a recorded array. Checks that their number matches the shape.
Words values_of(const json& array) {
  std::size_t count = 1;
  for (const json& size : array.at("shape")) count *= size.get<std::size_t>();
  Words values = array.at("values").get<Words>();
  EXPECT_EQ(values.size(), count);
  return values;
}

Words words_of(const std::vector<KeyData>& keys) {
  Words words;
  for (const KeyData key : keys) words.insert(words.end(), {key.hi, key.lo});
  return words;
}

/// The number 7 in the name `fold_in(key,7)`.
std::uint32_t number_after_comma(const std::string& name) {
  return static_cast<std::uint32_t>(std::stoul(name.substr(name.find(',') + 1)));
}

class RandomKeys : public ::testing::TestWithParam<int> {
 protected:
  const json all = read_golden("prng.json").at("partitionable=True");
  const json recorded = all.at("key" + std::to_string(GetParam()));
  const KeyData key = key_from_seed(GetParam());

  /// Calls check(name, recorded array) for each name that starts with `prefix`.
  template <typename Check>
  int for_each(const std::string& prefix, Check check) const {
    int count = 0;
    for (const auto& [name, array] : recorded.items()) {
      if (!name.starts_with(prefix)) continue;
      SCOPED_TRACE(name);
      check(name, array);
      ++count;
    }
    return count;
  }
};

TEST(Threefry, EncryptsTheKnownBlocks) {
  const json golden = read_golden("prng.json");
  const json& blocks = golden.at("threefry2x32_block");
  ASSERT_EQ(blocks.size(), 3U);
  for (const json& block : blocks) {
    const Words key = block.at("key").get<Words>();
    const Words count = block.at("count").get<Words>();
    const auto out = threefry2x32({key.at(0), key.at(1)}, count.at(0), count.at(1));
    EXPECT_EQ(Words(out.begin(), out.end()), values_of(block.at("out")));
  }
}

TEST(Threefry, MakesKeysFromSeeds) {
  const json golden = read_golden("prng.json");
  const std::string prefix = "PRNGKey(";
  int count = 0;
  for (const auto& [name, array] : golden.at("partitionable=True").items()) {
    if (!name.starts_with(prefix)) continue;
    EXPECT_EQ(words_of({key_from_seed(std::stoll(name.substr(prefix.size())))}), values_of(array))
        << name;
    ++count;
  }
  EXPECT_EQ(count, 4);
  EXPECT_EQ(key_from_seed((std::int64_t{3} << 32U) + 5), (KeyData{0, 5}));
}

TEST(Threefry, UsesBothWordsOfTheIndex) {
  constexpr KeyData kKey{320440878, 57701188};
  constexpr std::uint64_t kIndex = (std::uint64_t{608135816} << 32U) | 2242054355U;
  EXPECT_EQ(split_at(kKey, kIndex), (KeyData{3297917596, 1212020640}));
  EXPECT_EQ(random_bits(kKey, kIndex), 3297917596U ^ 1212020640U);
}

TEST_P(RandomKeys, Split) {
  const int count = for_each("split(", [&](const std::string&, const json& array) {
    const Words expected = values_of(array);
    EXPECT_EQ(words_of(split(key, expected.size() / 2)), expected);
  });
  EXPECT_EQ(count, 3);
  EXPECT_TRUE(split(key, 0).empty());
}

TEST_P(RandomKeys, FoldIn) {
  const int count = for_each("fold_in(", [&](const std::string& name, const json& array) {
    EXPECT_EQ(words_of({fold_in(key, number_after_comma(name))}), values_of(array));
  });
  EXPECT_EQ(count, 4);
}

TEST_P(RandomKeys, Bits) {
  const std::vector<std::pair<std::string, std::uint32_t>> masks = {
      {"uint32", 0xFFFFFFFFU}, {"uint16", 0xFFFFU}, {"uint8", 0xFFU}};
  const int count = for_each("bits(", [&](const std::string&, const json& array) {
    std::uint32_t mask = 0;
    for (const auto& [dtype, bits] : masks) mask |= array.at("dtype") == dtype ? bits : 0;
    Words bits(values_of(array).size());
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = random_bits(key, i) & mask;
    EXPECT_EQ(bits, values_of(array));
  });
  EXPECT_EQ(count, 13);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomKeys, ::testing::Values(0, 42));

}  // namespace
}  // namespace tessera
