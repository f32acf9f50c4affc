#include "base/small_list.h"

#include <gtest/gtest.h>
#include <vector>

namespace tessera {
namespace {

using List = SmallList<int, 4>;

std::vector<int> items(const List& list) { return {list.begin(), list.end()}; }

/// Applies the same operations to a SmallList and to a vector, up to and past the size at which the
/// list allocates memory.
TEST(SmallList, IsAVector) {
  List list;
  std::vector<int> same;
  for (int i = 0; i < 40; ++i) {
    const auto at = (7 * i) % (std::ssize(same) + 1);
    if (i % 5 == 4) {
      list.erase(list.begin() + at / 2, list.begin() + at);
      same.erase(same.begin() + at / 2, same.begin() + at);
    } else if (i % 5 == 2) {
      const std::vector<int> more{i, -i, i};
      list.insert(list.begin() + at, more.begin(), more.end());
      same.insert(same.begin() + at, more.begin(), more.end());
    } else {
      list.insert(list.begin() + at, i);
      same.insert(same.begin() + at, i);
    }
    ASSERT_EQ(items(list), same) << i;
  }
}

TEST(SmallList, CopiesAndMovesShortAndLongOnes) {
  for (const std::size_t size : {std::size_t{3}, std::size_t{4}, std::size_t{9}}) {
    List list(size, 7);
    list[1] = 1;
    const List copy = list;
    EXPECT_EQ(copy, list);
    List moved = std::move(list);
    EXPECT_EQ(moved, copy);
    moved.push_back(2);
    EXPECT_NE(moved, copy);
    moved = copy;
    EXPECT_EQ(moved, copy);
    list = std::move(moved);
    EXPECT_EQ(list, copy);
  }
}

TEST(SmallList, ComparesLikeAVector) {
  EXPECT_LT((List{1, 2}), (List{1, 2, 0}));
  EXPECT_LT((List{1, 2, 9, 9, 9}), (List{1, 3}));
  EXPECT_EQ(List(), (List{}));
  List list{1, 2, 1, 3, 1};
  erase(list, 1);
  EXPECT_EQ(list, (List{2, 3}));
  list.resize(5, 8);
  EXPECT_EQ(list, (List{2, 3, 8, 8, 8}));
}

}  // namespace
}  // namespace tessera
