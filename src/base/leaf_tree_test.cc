#include "base/leaf_tree.h"

#include <gtest/gtest.h>
#include <string>

namespace tessera {
namespace {

using Counts = std::vector<std::int64_t>;

Counts counts_of(const Counts& sizes, std::int64_t grains = 8) {
  return leaf_counts(sizes, grains);
}

TEST(LeafCounts, OneDimensionHasGrainsLeaves) {
  EXPECT_EQ(counts_of({256}), Counts({8}));
  EXPECT_EQ(counts_of({5}), Counts({8}));  // some leaves are empty
  EXPECT_EQ(counts_of({1}), Counts({1}));
  EXPECT_EQ(counts_of({0}), Counts({8}));
  EXPECT_EQ(counts_of({256}, 24), Counts({24}));
  EXPECT_EQ(counts_of({}), Counts({}));
}

TEST(LeafCounts, LaterDimensionsShareWhileLeavesAreLarge) {
  EXPECT_EQ(counts_of({32, 64}), Counts({8, 8}));  // 2048 terms in 64 grains of 32
  EXPECT_EQ(counts_of({32, 63}), Counts({8, 4}));  // 31.5 terms would be too few
  EXPECT_EQ(counts_of({8, 32}), Counts({8, 1}));
  EXPECT_EQ(counts_of({8, 64}), Counts({8, 2}));
  EXPECT_EQ(counts_of({4, 4}), Counts({8, 1}));
  EXPECT_EQ(counts_of({64, 64, 64}), Counts({8, 8, 8}));
  EXPECT_EQ(counts_of({8, 64, 16}), Counts({8, 8, 4}));
  // The share doubles each time, so it never exceeds `grains`.
  EXPECT_EQ(counts_of({4096, 4096}, 24), Counts({24, 16}));
}

TEST(LeafCounts, DimensionsOfSizeOneHaveOneLeaf) {
  EXPECT_EQ(counts_of({1, 4096}), Counts({1, 8}));
  EXPECT_EQ(counts_of({1, 5, 1}), Counts({1, 8, 1}));
  EXPECT_EQ(counts_of({1, 1}), Counts({1, 1}));
  EXPECT_EQ(counts_of({32, 1, 64}), Counts({8, 1, 8}));
}

TEST(LeafStart, LeavesCoverTheDimensionInOrder) {
  for (std::int64_t size : {0, 1, 5, 8, 10, 65, 50257}) {
    for (std::int64_t count : {1, 8, 24}) {
      EXPECT_EQ(leaf_start(0, count, size), 0);
      EXPECT_EQ(leaf_start(count, count, size), size);
      for (std::int64_t leaf = 0; leaf < count; ++leaf) {
        const std::int64_t length =
            leaf_start(leaf + 1, count, size) - leaf_start(leaf, count, size);
        EXPECT_GE(length, size / count);
        EXPECT_LE(length, (size + count - 1) / count);
      }
    }
  }
}

/// Records the order in which terms were added.
struct Term {
  std::string text = "0";
  friend Term operator+(const Term& a, const Term& b) {
    return {"(" + a.text + "+" + b.text + ")"};
  }
};

/// The range [begin, end) splits at begin + the largest power of two below its length.
std::string tree_text(int begin, int end) {
  if (end - begin == 1) return std::to_string(begin);
  int half = 1;
  while (2 * half < end - begin) half *= 2;
  return "(" + tree_text(begin, begin + half) + "+" + tree_text(begin + half, end) + ")";
}

TEST(TreeSum, AddsByTheTree) {
  EXPECT_EQ(tree_text(0, 7), "(((0+1)+(2+3))+((4+5)+6))");
  for (int count = 1; count <= 130; ++count) {
    TreeSum<Term> sum;
    for (int i = 0; i < count; ++i) sum.push({std::to_string(i)});
    EXPECT_EQ(sum.finish().text, tree_text(0, count));
  }
}

TEST(TreeSum, NothingIsZeroAndASumCanStartAgain) {
  TreeSum<Term> sum;
  EXPECT_EQ(sum.finish().text, "0");
  for (int count : {3, 5, 2}) {
    for (int i = 0; i < count; ++i) sum.push({std::to_string(i)});
    EXPECT_EQ(sum.finish().text, tree_text(0, count));
  }
}

TEST(TreeSum, SubtreesOfDevicesGiveTheWholeTree) {
  // 8 grains on 1, 2, 4 or 8 devices: each device sums its own; the tree continues over the
  // devices.
  for (int devices : {1, 2, 4, 8}) {
    TreeSum<Term> whole;
    for (int device = 0; device < devices; ++device) {
      TreeSum<Term> part;
      for (int i = 0; i < 8 / devices; ++i) {
        part.push({std::to_string(device * 8 / devices + i)});
      }
      whole.push(part.finish());
    }
    EXPECT_EQ(whole.finish().text, tree_text(0, 8));
  }
}

}  // namespace
}  // namespace tessera
