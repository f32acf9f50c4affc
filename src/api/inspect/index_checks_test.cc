// set_index_checks: an index out of range causes an error that names it, wherever the op runs.
#include <gtest/gtest.h>
#include <random>

#include <tessera/tessera.h>

#include "api/test_support.h"

namespace tessera {
namespace {

using testing::expect_same_bits;
using testing::mistake_of;
using testing::numbers;

/// Runs each test in a context in which indices are checked.
class IndexChecks : public ::testing::Test {
 protected:
  IndexChecks() { set_index_checks(true); }

 private:
  const Context context_;
  const use_context scope_{context_};
};

struct Case {
  const char* op;
  std::int64_t size;  // of the dimension that the indices point into
  Array (*call)(const Array& x, const Array& ids);
};

/// x: f32[6,4], ids: i32[3,2]
const Case kCases[] = {
    {"take", 6, [](const Array& x, const Array& ids) { return take(x, ids); }},
    {"take", 4, [](const Array& x, const Array& ids) { return take(x, ids, 1); }},
    {"take_along_axis", 4,
     [](const Array& x, const Array& ids) { return take_along_axis(x.slice(0, 0, 3), ids, -1); }},
    {"scatter", 6, [](const Array& x, const Array& ids) { return scatter(x, ids, 2.0F); }},
    {"scatter_add", 6, [](const Array& x, const Array& ids) { return scatter_add(x, ids, 1.0F); }},
    {"one_hot", 4, [](const Array& /*x*/, const Array& ids) { return one_hot(ids, 4); }},
};

Array ids_with(std::int32_t last) { return array({0, 1, 2, 3, 1, last}, {3, 2}); }

TEST_F(IndexChecks, EachOpNamesIndexPositionAndBound) {
  const Array x = numbers({6, 4}, 1);
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.op);
    const std::string bound = "from 0 to " + std::to_string(each.size - 1) + ": ";
    for (const std::int64_t bad : {each.size, std::int64_t{-1}, std::int64_t{1} << 30}) {
      const Array ids = ids_with(static_cast<std::int32_t>(bad));
      const std::string found = std::to_string(bad) + " at position [2,1] of i32[3,2]";
      const auto jitted = jit(each.call);
      for (const Mistake& mistake :
           {mistake_of([&] { each.call(x, ids); }), mistake_of([&] { jitted(x, ids); })}) {
        EXPECT_EQ(mistake.what, std::string(each.op) + ": an index is out of range");
        EXPECT_EQ(mistake.found, found);
        EXPECT_TRUE(mistake.wanted.starts_with(bound)) << mistake.wanted;
      }
    }
  }
}

TEST_F(IndexChecks, RightIndicesGiveTheSameBits) {
  const Array x = numbers({6, 4}, 2);
  const Array ids = ids_with(2);
  for (const Case& each : kCases) {
    const Array found = jit(each.call)(x, ids);
    set_index_checks(false);
    expect_same_bits(found, jit(each.call)(x, ids));
    set_index_checks(true);
  }
}

TEST_F(IndexChecks, IsPartOfWhatAFunctionIsTracedFor) {
  const auto f = jit([](Array x, Array ids) { return take(x, ids); });
  const Array x = numbers({6, 4}, 3);
  const Array ids = ids_with(6);
  set_index_checks(false);
  EXPECT_FALSE(index_checks());
  f(x, ids);
  set_index_checks(true);
  EXPECT_TRUE(index_checks());
  EXPECT_THROW(f(x, ids), UserError);
  EXPECT_EQ(f.why_recompiled(), "setting index checks: off before, on now\n");
  set_index_checks(false);
  f(x, ids);
  EXPECT_EQ(f.num_traces(), 2);
}

TEST_F(IndexChecks, TheLineIsThatOfTheCall) {
  const Param table(numbers({6, 4}, 8), "table/embedding");
  std::uint32_t line = 0;
  const auto f = jit([&](Array ids) {
    line = std::source_location::current().line() + 1;
    return sum(take(table, ids));
  });
  const Mistake mistake = mistake_of([&] { f(ids_with(6)); });
  EXPECT_EQ(mistake.where.line, line);
  EXPECT_EQ(mistake.wanted, "from 0 to 5: axis 0 of f32[6,4] (parameter table/embedding)");
}

TEST_F(IndexChecks, SplitArraysAreCheckedAsAWhole) {
  const use_mesh mesh(make_mesh({{"data", 2}, {"model", 2}}));
  const Array x = device_put(numbers({6, 4}, 4), P{"model"});
  const Array ids = device_put(array({0, 1, 5, 2, 9, 7, -3, 0}), P{"data"});
  const auto f = jit([](Array a, Array i) { return take(a, i); });
  const Mistake mistake = mistake_of([&] { f(x, ids); });
  EXPECT_EQ(mistake.found, "9 at position [4] of i32[8], and 2 more");
  const Array good = device_put(array({0, 1, 5, 2, 3, 4, 3, 0}), P{"data"});
  const Array found = f(x, good);
  set_index_checks(false);
  expect_same_bits(found, f(x, good));
}

TEST_F(IndexChecks, HoldsInTransformations) {
  const Array x = numbers({6}, 5);
  const Array ids = array({0, 1, 6, 2}, {4, 1});
  const auto loss = [&](const Array& a) { return sum(take(a, ids)); };
  EXPECT_EQ(mistake_of([&] { grad(loss)(x); }).found, "6 at position [2,0] of i32[4,1]");
  const auto row = [&](const Array& i) { return take(x, i); };
  EXPECT_EQ(mistake_of([&] { vmap(row)(ids); }).found, "6 at position [0] of i32[1]");
  const auto all = [&](Array i) {
    return scan([&](Array s, Array each) { return std::pair(s + sum(take(x, each)), s); },
                zeros({}), i)
        .first;
  };
  EXPECT_EQ(mistake_of([&] { jit(all)(ids); }).found, "6 at position [0] of i32[1]");
  EXPECT_EQ(mistake_of([&] {
              const disable_jit scope;
              jit(all)(ids);
            }).found,
            "6 at position [0] of i32[1]");
}

TEST_F(IndexChecks, OpsThatDropElementsAreNotMistakes) {
  const Array x = array({3, 1, 3, 2, 1});
  EXPECT_EQ(unique(x, 3).values.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 2, 3}));
  const Array logits = numbers({4, 3}, 6);
  const Array labels = array({0, 2, -1, 1});  // -1 means no class
  cross_entropy(logits, labels);
  metrics::in_top_k(logits, labels, 2);
}

TEST_F(IndexChecks, AScalarIndexAndAnEmptyTable) {
  const Array x = numbers({6, 4}, 7);
  EXPECT_EQ(mistake_of([&] { take(x, 7); }).found, "7");
  EXPECT_EQ(mistake_of([&] {
              take(zeros({0, 4}), array({0, 0}));
            }).wanted,
            "no index: there is nothing in axis 0 of f32[0,4]");
  take(zeros({0, 4}), zeros({0}, DType::i32));
}

TEST(IndexChecksOff, IsTheDefault) {
  EXPECT_FALSE(index_checks());
  EXPECT_EQ(one_hot(array({5}), 2).to_vector<float>(), (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace tessera
