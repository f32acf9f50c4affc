#include "compile/host/kernels/reduce.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <string>

#include "base/sanitized.h"
#include "compile/host/kernels/any_order/argmax.h"
#include "compile/host/kernels/on_every_target.h"
#include "compile/host/kernels/test_values.h"

namespace tessera::kernels {
namespace {

constexpr int kNumWorkers = 4;

using testing::at;
using testing::Random;
using testing::random_values;
using testing::same_bits;
using Sizes = std::vector<std::int64_t>;

// --- the definition, written as plainly as possible ----------------------------------------------

template <typename T>
T naive_leaf(const ReduceProblem& p, const T* from, const Sizes& start, const Sizes& extents) {
  T lanes[16] = {};
  testing::for_each_index(extents, [&](const Sizes& index) {
    T& lane = lanes[p.lanes16 ? index.back() % 16 : 0];
    lane = testing::naive_add(
        lane,
        from[testing::dot(start, p.reduced_strides) + testing::dot(index, p.reduced_strides)]);
  });
  if (!p.lanes16) return lanes[0];
  for (int half : {8, 4, 2, 1}) {
    for (int i = 0; i < half; ++i) lanes[i] = testing::naive_add(lanes[i], lanes[i + half]);
  }
  return lanes[0];
}

template <typename T>
T naive_sum(const ReduceProblem& p, const T* from) {
  Sizes grid;
  for (const Sizes& cuts : p.cuts) grid.push_back(static_cast<std::int64_t>(cuts.size()) - 1);
  std::vector<T> leaves;
  testing::for_each_index(grid, [&](const Sizes& leaf) {
    Sizes start, extents;
    for (std::size_t d = 0; d < leaf.size(); ++d) {
      start.push_back(p.cuts[d][at(leaf[d])]);
      extents.push_back(p.cuts[d][at(leaf[d]) + 1] - start.back());
    }
    leaves.push_back(naive_leaf(p, from, start, extents));
  });
  return testing::naive_tree(std::span<const T>(leaves), testing::naive_add<T>);
}

template <typename T>
T naive_other(const ReduceProblem& p, const T* from) {
  std::vector<T> terms;
  testing::for_each_index(p.reduced_extents, [&](const Sizes& index) {
    terms.push_back(from[testing::dot(index, p.reduced_strides)]);
  });
  T best = terms.at(0);
  for (T x : terms) {
    if (p.kind == ReduceKind::all) best = static_cast<T>(best != T{} && x != T{});
    if (p.kind == ReduceKind::any) best = static_cast<T>(best != T{} || x != T{});
    if (p.kind == ReduceKind::max) best = testing::naive_extreme(best, x, false);
    if (p.kind == ReduceKind::min) best = testing::naive_extreme(best, x, true);
  }
  return best;
}

template <typename T>
std::vector<T> naive_reduce(const ReduceProblem& p, const T* from) {
  std::vector<T> results;
  testing::for_each_index(p.kept_extents, [&](const Sizes& index) {
    const T* place = from + testing::dot(index, p.kept_strides);
    results.push_back(p.kind == ReduceKind::sum ? naive_sum(p, place) : naive_other(p, place));
  });
  return results;
}

/// Runs all parts, the last one first, and checks that only the results are written.
template <typename T>
std::vector<T> run(const ReduceProblem& p, const T* from, const CacheSizes& caches = {}) {
  const auto count = at(num_elements(p.kept_extents));
  const auto untouched = static_cast<T>(77.0F);
  std::vector<T> results(count + 16, untouched);
  const ReducePlan plan(p, kNumWorkers, caches);
  std::vector<std::byte> scratch(at(plan.scratch_bytes()));
  for (int part = plan.num_parts(); part-- > 0;) {
    plan.run(from, results.data(), scratch.data(), part);
  }
  if (!scratch.empty()) plan.join(scratch.data(), results.data());
  for (std::size_t i = count; i < results.size(); ++i) EXPECT_EQ(results[i], untouched);
  results.resize(count);
  return results;
}

// --- random problems -----------------------------------------------------------------------------

Sizes random_cuts(Random& random, std::int64_t extent) {
  Sizes cuts = {0, extent};
  const std::int64_t leaves = random.integer(1, 9);
  while (static_cast<std::int64_t>(cuts.size()) <= leaves) {
    cuts.push_back(random.integer(0, extent));
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

struct Case {
  ReduceProblem problem;
  std::int64_t offset;
  std::int64_t size;
  std::string text() const {
    std::string result = "kept " + to_string(problem.kept_extents) + " reduced " +
                         to_string(problem.reduced_extents) + " strides " +
                         to_string(problem.kept_strides) + to_string(problem.reduced_strides);
    for (const Sizes& cuts : problem.cuts) result += " cuts " + to_string(cuts);
    return result + (problem.lanes16 ? " lanes" : "");
  }
};

Case random_case(Random& random, ReduceKind kind, DType dtype) {
  const std::int64_t rank = random.integer(1, 4);
  const std::int64_t num_reduced = random.integer(1, std::min<std::int64_t>(rank, 3));
  const std::int64_t wide = random.integer(0, rank - 1);
  Shape shape;
  for (std::int64_t d = 0; d < rank; ++d) {
    shape.push_back(d == wide ? random.integer(1, 400) : random.integer(1, 5));
  }
  const testing::Layout layout = testing::random_layout(random, shape, true);
  Case result{.problem = {}, .offset = layout.offset, .size = layout.size};
  ReduceProblem& p = result.problem;
  p.kind = kind;
  p.dtype = dtype;
  Sizes order(at(rank));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random.engine);
  std::sort(order.begin(), order.begin() + num_reduced);
  std::sort(order.begin() + num_reduced, order.end());
  for (std::int64_t i = 0; i < rank; ++i) {
    const std::size_t d = at(order[at(i)]);
    (i < num_reduced ? p.reduced_extents : p.kept_extents).push_back(shape[d]);
    (i < num_reduced ? p.reduced_strides : p.kept_strides).push_back(layout.strides[d]);
  }
  if (kind != ReduceKind::sum) return result;
  for (std::int64_t extent : p.reduced_extents) p.cuts.push_back(random_cuts(random, extent));
  p.lanes16 = random.one_in(2);
  return result;
}

template <typename T>
void check_random(std::vector<ReduceKind> kinds, int count) {
  Random random;
  for (int i = 0; i < num_cases(count); ++i) {
    for (ReduceKind kind : kinds) {
      const Case c = random_case(random, kind, testing::dtype_of<T>());
      const auto values = random_values<T>(random, at(c.size), random.one_in(3));
      const T* from = values.data() + c.offset;
      ASSERT_TRUE(same_bits(run(c.problem, from), naive_reduce(c.problem, from))) << c.text();
    }
  }
}

TEST(Reduce, EveryLayoutFollowsTheDefinition) {
  testing::on_every_target([](const char* /*name*/) {
    check_random<float>({ReduceKind::sum, ReduceKind::max, ReduceKind::min}, 500);
    check_random<double>({ReduceKind::sum, ReduceKind::max, ReduceKind::min}, 100);
    check_random<std::int32_t>({ReduceKind::sum, ReduceKind::max, ReduceKind::min}, 100);
    check_random<std::uint32_t>({ReduceKind::sum, ReduceKind::max, ReduceKind::min}, 100);
    check_random<std::int64_t>({ReduceKind::sum, ReduceKind::max, ReduceKind::min}, 100);
    check_random<std::uint8_t>({ReduceKind::all, ReduceKind::any}, 100);
  });
}

/// The extremes of half-precision numbers equal those of the same numbers as f32.
template <typename Half>
void check_halves(int count) {
  Random random;
  for (int i = 0; i < num_cases(count); ++i) {
    const ReduceKind kind = random.one_in(2) ? ReduceKind::max : ReduceKind::min;
    const Case c = random_case(random, kind, tessera::dtype_of<Half>);
    std::vector<float> numbers = random_values<float>(random, at(c.size), random.one_in(3));
    std::vector<Half> halves;
    for (float& x : numbers) {
      halves.push_back(Half(x));
      x = static_cast<float>(halves.back());
    }
    std::vector<float> found;
    for (const Half x : run(c.problem, halves.data() + c.offset)) found.push_back(x);
    ASSERT_TRUE(same_bits(found, naive_reduce(c.problem, numbers.data() + c.offset))) << c.text();
  }
}

TEST(Reduce, ExtremesOfHalves) {
  testing::on_every_target([](const char* /*name*/) {
    check_halves<bfloat16>(200);
    check_halves<float16>(200);
  });
}

/// Boundaries that cut `extent` into equal or nearly equal grains.
Sizes even_cuts(std::int64_t extent, std::int64_t leaves) {
  Sizes cuts;
  for (std::int64_t i = 0; i <= leaves; ++i) cuts.push_back(i * extent / leaves);
  return cuts;
}

/// Rows of few terms, many of which are reduced at a time. Some rows hold only -0.0.
template <typename T>
void check_short_rows(Random& random, ReduceKind kind) {
  const bool has_eighths = random.one_in(3);
  const std::int64_t length = has_eighths ? 8 << random.integer(0, 5) : random.integer(1, 70);
  const std::int64_t rows = random.integer(1, 200);
  const std::int64_t stride = length + (random.one_in(2) ? 0 : random.integer(1, 3));
  ReduceProblem p{.kind = kind,
                  .dtype = testing::dtype_of<T>(),
                  .kept_extents = {rows},
                  .kept_strides = {stride},
                  .reduced_extents = {length},
                  .reduced_strides = {1},
                  .cuts = {},
                  .lanes16 = true};
  if (kind == ReduceKind::sum)
    p.cuts = {has_eighths ? even_cuts(length, 8) : random_cuts(random, length)};
  auto values = random_values<T>(random, at(rows * stride), random.one_in(3));
  const auto zeros = at(random.integer(0, rows)) * at(stride);
  std::fill_n(values.begin(), zeros, -T{});
  ASSERT_TRUE(same_bits(run(p, values.data()), naive_reduce(p, values.data())))
      << rows << " rows of " << length;
}

TEST(Reduce, ShortRowsFollowTheDefinition) {
  testing::on_every_target([](const char* /*name*/) {
    Random random;
    for (int i = 0; i < num_cases(200); ++i) {
      check_short_rows<float>(random, ReduceKind::sum);
      check_short_rows<double>(random, ReduceKind::sum);
      for (const ReduceKind kind : {ReduceKind::max, ReduceKind::min}) {
        check_short_rows<float>(random, kind);
        check_short_rows<double>(random, kind);
        check_short_rows<std::int32_t>(random, kind);
        check_short_rows<std::uint32_t>(random, kind);
      }
    }
  });
}

TEST(Reduce, OrderOfTheSumIsSeen) {
  // With other grains or without lanes, the same terms give other bits: this shows that the tests
  // above can fail.
  Random random;
  const auto values = random_values<float>(random, 1000);
  ReduceProblem p{.kind = ReduceKind::sum,
                  .dtype = DType::f32,
                  .kept_extents = {},
                  .kept_strides = {},
                  .reduced_extents = {1000},
                  .reduced_strides = {1},
                  .cuts = {{0, 125, 250, 375, 500, 625, 750, 875, 1000}},
                  .lanes16 = true};
  const float lanes = run(p, values.data())[0];
  p.cuts = {{0, 1000}};
  const float one_leaf = run(p, values.data())[0];
  p.lanes16 = false;
  const float in_order = run(p, values.data())[0];
  EXPECT_NE(lanes, one_leaf);
  EXPECT_NE(one_leaf, in_order);
}

TEST(Reduce, EveryNumberOfPartsGivesTheSameBits) {
  Random random;
  std::vector<bool> is_seen(17, false);
  for (std::int64_t rows : {1, 2, 3, 7, 8, 13, 16, 29, 64}) {
    const auto values = random_values<float>(random, at(rows * 36864));
    for (bool is_columns : {false, true}) {
      ReduceProblem p{.kind = ReduceKind::sum,
                      .dtype = DType::f32,
                      .kept_extents = {is_columns ? 2 * rows * 17 : rows},
                      .kept_strides = {is_columns ? 1 : 36864},
                      .reduced_extents = {is_columns ? 1024 : 36864},
                      .reduced_strides = {is_columns ? 2 * rows * 17 : 1},
                      .cuts = {{0, 5, 99, 700, is_columns ? 1024 : 36864}},
                      .lanes16 = !is_columns};
      is_seen[at(ReducePlan(p, kNumWorkers).num_parts())] = true;
      ASSERT_TRUE(same_bits(run(p, values.data()), naive_reduce(p, values.data()))) << rows;
      for (const ReduceKind kind : {ReduceKind::max, ReduceKind::min}) {
        p.kind = kind;
        ASSERT_TRUE(same_bits(run(p, values.data()), naive_reduce(p, values.data()))) << rows;
      }
    }
  }
  EXPECT_GE(std::count(is_seen.begin(), is_seen.end(), true), 7);
  EXPECT_TRUE(is_seen[16]);
}

/// Sums over nearly all of an array, with fewer results than threads.
template <typename T>
void check_few_results(Random& random, std::int64_t results) {
  const Sizes shape = {random.integer(1, 12), random.integer(20, 70), random.integer(33, 300)};
  const std::int64_t size = num_elements(shape);
  ReduceProblem p{.kind = ReduceKind::sum,
                  .dtype = testing::dtype_of<T>(),
                  .kept_extents = {results},
                  .kept_strides = {size},
                  .reduced_extents = shape,
                  .reduced_strides = {shape[1] * shape[2], shape[2], 1},
                  .cuts = {},
                  .lanes16 = true};
  for (const std::int64_t extent : shape)
    p.cuts.push_back(even_cuts(extent, random.integer(2, 40)));
  const auto values = random_values<T>(random, at(results * size));
  const int num_parts = ReducePlan(p, kNumWorkers).num_parts();
  EXPECT_TRUE(size < 2 * 32 * 1024 || num_parts > results);
  ASSERT_TRUE(same_bits(run(p, values.data()), naive_reduce(p, values.data())));
}

TEST(Reduce, PartsShareFewResults) {
  testing::on_every_target([](const char* /*name*/) {
    Random random;
    for (int i = 0; i < num_cases(40); ++i) {
      check_few_results<float>(random, random.integer(1, 3));
      check_few_results<double>(random, random.integer(1, 3));
    }
  });
}

/// A sum over the first and the third of four dimensions; `order` is their order in memory.
ReduceProblem columns_problem(const Sizes& shape, std::vector<std::size_t> order, Sizes leaves) {
  Sizes strides(4);
  std::int64_t stride = 1;
  for (std::size_t d = 4; d-- > 0; stride *= shape[order[d]]) strides[order[d]] = stride;
  return {.kind = ReduceKind::sum,
          .dtype = DType::f32,
          .kept_extents = {shape[1], shape[3]},
          .kept_strides = {strides[1], strides[3]},
          .reduced_extents = {shape[0], shape[2]},
          .reduced_strides = {strides[0], strides[2]},
          .cuts = {even_cuts(shape[0], leaves[0]), even_cuts(shape[2], leaves[1])}};
}

TEST(Reduce, ColumnsInEveryOrderOfTheMemory) {
  testing::on_every_target([](const char* /*name*/) {
    Random random;
    int num_joined = 0;
    int num_parts_alone = 0;
    int index = 0;
    for (const Sizes& shape : {Sizes{16, 3, 33, 20}, Sizes{8, 2, 65, 48}, Sizes{13, 8, 65, 49},
                               Sizes{9, 1, 17, 2600}, Sizes{6, 300, 9, 17}, Sizes{64, 1, 4, 520}}) {
      const auto values = random_values<float>(random, at(num_elements(shape)), random.one_in(2));
      for (const std::vector<std::size_t>& order : {std::vector<std::size_t>{0, 1, 2, 3},
                                                    {0, 2, 1, 3},
                                                    {0, 1, 3, 2},
                                                    {1, 0, 3, 2},
                                                    {2, 0, 1, 3},
                                                    {1, 3, 2, 0}}) {
        for (const Sizes& leaves : {Sizes{8, 8}, Sizes{1, 3}, Sizes{5, 1}, Sizes{3, 6}}) {
          if (!is_tried(index++)) continue;
          const ReduceProblem p = columns_problem(shape, order, leaves);
          const ReducePlan plan(p, kNumWorkers);
          num_joined += plan.scratch_bytes() > 0 ? 1 : 0;
          num_parts_alone += plan.scratch_bytes() == 0 && plan.num_parts() > 1 ? 1 : 0;
          const auto expected = naive_reduce(p, values.data());
          ASSERT_TRUE(same_bits(run(p, values.data()), expected))
              << to_string(shape) << " leaves " << to_string(leaves);
          const CacheSizes caches = testing::random_caches(random);
          ASSERT_TRUE(same_bits(run(p, values.data(), caches), expected))
              << to_string(shape) << " leaves " << to_string(leaves) << " L2 " << caches.l2;
        }
      }
    }
    EXPECT_GT(num_joined, num_cases(10));
    EXPECT_GT(num_parts_alone, num_cases(10));
  });
}

// --- corner cases --------------------------------------------------------------------------------

ReduceProblem row(ReduceKind kind, std::int64_t length) {
  return {.kind = kind,
          .dtype = DType::f32,
          .kept_extents = {},
          .kept_strides = {},
          .reduced_extents = {length},
          .reduced_strides = {1},
          .cuts = {{0, length}},
          .lanes16 = true};
}

TEST(Reduce, NanWinsWhereverItStands) {
  for (std::int64_t length = 1; length <= 70; ++length) {
    for (std::int64_t place = 0; place < length; ++place) {
      for (ReduceKind kind : {ReduceKind::max, ReduceKind::min, ReduceKind::sum}) {
        std::vector<float> values(at(length), kind == ReduceKind::max ? INFINITY : -INFINITY);
        values[at(place)] = place % 2 == 0 ? NAN : -NAN;
        EXPECT_TRUE(std::isnan(run(row(kind, length), values.data())[0])) << length << " " << place;
      }
    }
  }
}

TEST(Reduce, MinusZeroIsBelowPlusZero) {
  for (std::int64_t length = 2; length <= 40; ++length) {
    for (std::int64_t place = 0; place < length; ++place) {
      for (bool is_min : {false, true}) {
        std::vector<float> values(at(length), is_min ? 0.0F : -0.0F);
        values[at(place)] = is_min ? -0.0F : 0.0F;
        const ReduceKind kind = is_min ? ReduceKind::min : ReduceKind::max;
        EXPECT_EQ(std::signbit(run(row(kind, length), values.data())[0]), is_min);
      }
    }
  }
}

TEST(Reduce, SumsOfMinusZerosArePlusZero) {
  for (std::int64_t length : {1, 15, 16, 17, 40}) {
    const std::vector<float> values(at(length), -0.0F);
    EXPECT_FALSE(std::signbit(run(row(ReduceKind::sum, length), values.data())[0]));
  }
}

TEST(Reduce, NothingGivesTheIdentity) {
  const float none = 0.0F;
  EXPECT_EQ(run(row(ReduceKind::sum, 0), &none)[0], 0.0F);
  EXPECT_EQ(run(row(ReduceKind::max, 0), &none)[0], -INFINITY);
  EXPECT_EQ(run(row(ReduceKind::min, 0), &none)[0], INFINITY);
  ReduceProblem p = row(ReduceKind::sum, 0);
  p.lanes16 = false;
  p.kept_extents = {5};
  p.kept_strides = {1};
  EXPECT_TRUE(same_bits(run(p, &none), std::vector<float>(5, 0.0F)));
}

TEST(Reduce, NoReducedDimensionsKeepTheElements) {
  Random random;
  const auto values = random_values<float>(random, 33);
  ReduceProblem p{.kind = ReduceKind::sum,
                  .dtype = DType::f32,
                  .kept_extents = {33},
                  .kept_strides = {1},
                  .reduced_extents = {},
                  .reduced_strides = {},
                  .cuts = {}};
  std::vector<float> wanted = values;
  for (float& x : wanted) x += 0.0F;
  EXPECT_TRUE(same_bits(run(p, values.data()), wanted));
  p.kind = ReduceKind::max;
  EXPECT_TRUE(same_bits(run(p, values.data()), values));
}

template <typename T>
void check_argmax(Random& random) {
  for (int i = 0; i < num_cases(100); ++i) {
    const ArgmaxProblem p{.dtype = testing::dtype_of<T>(),
                          .outer = random.integer(1, 4),
                          .size = random.integer(1, random.one_in(4) ? 300 : 40),
                          .inner = random.integer(1, random.one_in(8) ? 300 : 4),
                          .is_min = random.one_in(2)};
    auto values = random_values<T>(random, at(p.outer * p.size * p.inner), true);
    // Ties: few distinct values.
    for (T& x : values) {
      if (random.one_in(2)) x = values[at(random.integer(0, 2)) % values.size()];
    }
    std::vector<std::int32_t> found(at(p.outer * p.inner), -1);
    const std::int64_t split = random.integer(0, p.outer * p.inner);
    argmax(p, split, p.outer * p.inner, values.data(), found.data());
    argmax(p, 0, split, values.data(), found.data());
    for (std::int64_t o = 0; o < p.outer * p.inner; ++o) {
      auto element = [&](std::int64_t k) {
        return values[at((o / p.inner * p.size + k) * p.inner + o % p.inner)];
      };
      std::int64_t best = -1;
      for (std::int64_t k = p.size; k-- > 0;) {
        bool is_largest = true;
        for (std::int64_t other = 0; other < p.size; ++other) {
          const bool is_nan = element(k) != element(k);
          const bool is_beyond =
              p.is_min ? element(k) <= element(other) : element(k) >= element(other);
          is_largest = is_largest && (is_nan || is_beyond);
        }
        if (is_largest) best = k;
      }
      ASSERT_EQ(found[at(o)], best);
    }
  }
}

TEST(Argmax, LowestIndexOfTheLargestAndNanIsLargest) {
  testing::on_every_target([](const char* /*name*/) {
    Random random;
    check_argmax<float>(random);
    check_argmax<double>(random);
    check_argmax<std::int32_t>(random);
    check_argmax<std::uint32_t>(random);
    check_argmax<std::uint8_t>(random);
  });
}

TEST(Argmax, ZerosOfBothSignsAreEqual) {
  const std::vector<float> values = {-1.0F, -0.0F, 0.0F};
  std::int32_t found = -1;
  argmax({.dtype = DType::f32, .size = 3}, 0, 1, values.data(), &found);
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace tessera::kernels
