#include "base/lru_cache.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace tessera {
namespace {

TEST(LruCache, RemovesWhatWasNotLookedUpForTheLongestTime) {
  LruCache<int> cache(2);
  cache.insert("a", 1);
  cache.insert("b", 2);
  EXPECT_EQ(*cache.find("a"), 1);
  cache.insert("c", 3);
  EXPECT_EQ(cache.find("b"), nullptr);
  EXPECT_EQ(*cache.find("a"), 1);
  EXPECT_EQ(*cache.find("c"), 3);
  EXPECT_EQ(cache.size(), 2U);
}

/// Compares the cache with a list that is searched from its end.
TEST(LruCache, HoldsTheSameAsAList) {
  constexpr std::size_t kMost = 5;
  std::minstd_rand random(3);
  LruCache<unsigned> cache(kMost);
  std::vector<std::pair<std::string, unsigned>> list;  // the most recently used item is at the end
  for (unsigned i = 0; i < 10'000; ++i) {
    const std::string key =
        "a key that is long enough to be on the heap " + std::to_string(random() % 9);
    const auto known =
        std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.first == key; });
    unsigned* found = cache.find(key);
    ASSERT_EQ(found != nullptr, known != list.end());
    if (found != nullptr) {
      ASSERT_EQ(*found, known->second);
      std::rotate(known, known + 1, list.end());
      continue;
    }
    cache.insert(key, i);
    list.emplace_back(key, i);
    if (list.size() > kMost) list.erase(list.begin());
  }
}

}  // namespace
}  // namespace tessera
