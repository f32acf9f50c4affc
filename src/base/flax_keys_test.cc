#include "base/flax_keys.h"

#include <gtest/gtest.h>
#include <vector>

#include "tests/peers/golden.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

TEST(FlaxKeys, FoldsPathAndCounter) {
  const KeyData key = flax_fold(key_from_seed(42), Names{"blocks_0", "Dense_0"}, 1);
  EXPECT_EQ(key, (KeyData{2558954753, 1528310645}));
}

TEST(FlaxKeys, EqualsFlax) {
  const nlohmann::json golden = read_golden("flax_keys.json");
  ASSERT_EQ(golden.at("cases").size(), 180U);
  for (const nlohmann::json& item : golden.at("cases")) {
    SCOPED_TRACE(item.dump());
    const auto expected = item.at("key").get<std::vector<std::uint32_t>>();
    const KeyData root = key_from_seed(item.at("seed").get<std::int64_t>());
    const KeyData key =
        flax_fold(root, item.at("path").get<Names>(), item.at("counter").get<std::uint32_t>());
    EXPECT_EQ((std::vector{key.hi, key.lo}), expected);
  }
}

}  // namespace
}  // namespace tessera
