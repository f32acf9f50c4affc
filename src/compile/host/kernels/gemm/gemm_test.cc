#include "compile/host/kernels/gemm/gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include <tessera/types.h>

#include "base/sanitized.h"
#include "compile/host/kernels/on_every_target.h"
#include "tests/kernels/gemm_problems.h"
#include "tests/kernels/gemm_reference.h"

namespace tessera::kernels {
namespace {

using namespace problems;

// --- running and comparing -----------------------------------------------------------------------

constexpr float kUntouched = 12345.0f;

std::vector<float> reference(const Case& c) {
  std::vector<float> out(at(c.c_size), kUntouched);
  Reference{c.problem, c.a.data(), c.b.data()}.run(out.data());
  return out;
}

// Often far from the sizes of any processor's caches, which must not change any bit of a result.
CacheSizes random_caches(Random& random) {
  return {.l1 = std::int64_t{1} << random.integer(0, 18),
          .l2 = std::int64_t{1} << random.integer(0, 24)};
}

std::vector<float> run(const Case& c, Random& random) {
  const GemmPlan plan(c.problem, static_cast<int>(random.integer(1, 8)), random_caches(random));
  std::vector<int> parts(static_cast<std::size_t>(plan.num_parts()));
  std::iota(parts.begin(), parts.end(), 0);
  std::shuffle(parts.begin(), parts.end(), random.engine);
  std::vector<float> out(at(c.c_size), kUntouched);
  for (int part : parts) plan.run(c.a.data(), c.b.data(), out.data(), part);
  return out;
}

// The bits; all NaNs count as the same.
std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> out;
  for (float x : values)
    out.push_back(std::isnan(x) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(x));
  return out;
}

std::string describe(const Case& c) {
  const GemmProblem& p = c.problem;
  return std::to_string(p.a.batch.size()) + " x " + std::to_string(p.a.outer.size()) + "x" +
         std::to_string(p.b.outer.size()) + "x" + std::to_string(p.a.k.size()) + ", " +
         std::to_string(p.leaf_ends.size()) + " leaves";
}

// Runs `body` once per instruction set of this machine.
template <class Body>
void on_every_target(const Body& body) {
  testing::on_every_target([&](const char* name) {
    EXPECT_STREQ(GemmPlan({{{0}, {0}, {0}}, {{0}, {0}, {0}}, {0}, {0}, {1}}, 1).target(), name);
    body();
  });
}

void expect_exact(const Case& c, Random& random) {
  const auto expected = bits(reference(c));
  on_every_target([&] { EXPECT_TRUE(bits(run(c, random)) == expected) << describe(c); });
}

TEST(Gemm, EqualsTheScalarTreeOnRandomProblems) {
  Random random;
  for (int i = 0; i < num_cases(250); ++i) {
    const std::int64_t k = random.integer(1, 130);
    expect_exact(make_case(random, random.integer(1, 3), random.integer(1, 60),
                           random.integer(1, 70), k, random_leaves(random, k), i % 4 == 0),
                 random);
  }
}

TEST(Gemm, GroupsSideBySideAreProductsOfTheirOwn) {
  Random random;
  for (int i = 0; i < num_cases(80); ++i)
    expect_exact(make_groups(random, random.integer(1, i % 8 == 0 ? 1500 : 80)), random);
}

// Pieces of the operands in separate buffers give the bits of one long sum.
TEST(Gemm, PiecesAreOneSum) {
  Random random;
  for (const std::int64_t pieces : {2, 3, 8}) {
    for (const std::int64_t leaves : {1, 2, 8}) {
      const std::int64_t length = random.integer(5, 300), m = 30, n = 40;
      Ends ends;
      for (std::int64_t i = 1; i <= pieces * leaves; ++i) ends.push_back(i * length / leaves);
      const Case whole = make_case(random, 1, m, n, pieces * length, ends, false);
      GemmProblem problem = whole.problem;
      problem.pieces = pieces;
      std::vector<const void*> a, b;
      for (std::int64_t i = 0; i < pieces; ++i) {
        // Moves the offset of the piece from the k table into the pointer to its buffer.
        a.push_back(whole.a.data() + problem.a.k[at(i * length)]);
        b.push_back(whole.b.data() + problem.b.k[at(i * length)]);
      }
      for (std::int64_t i = pieces * length; i-- > 0;) {
        problem.a.k[at(i)] -= problem.a.k[at(i / length * length)];
        problem.b.k[at(i)] -= problem.b.k[at(i / length * length)];
      }
      const auto expected = bits(reference(whole));
      on_every_target([&] {
        const GemmPlan plan(problem, 3);
        std::vector<float> out(at(whole.c_size), kUntouched);
        float* c = out.data();
        for (int part = 0; part < plan.num_parts(); ++part) plan.run(a, b, {&c, 1}, part);
        EXPECT_TRUE(bits(out) == expected) << pieces << " pieces, " << describe(whole);
      });
    }
  }
}

// Each product has its own A and C; all of them share B.
TEST(Gemm, ProductsThatShareBAreThoseOfEachAlone) {
  Random random;
  for (const std::int64_t products : {2, 3, 8}) {
    for (int i = 0; i < num_cases(8); ++i) {
      const std::int64_t batches = i % 3 == 0 ? 2 : 1, k = random.integer(1, i < 4 ? 60 : 900);
      Case one = make_case(random, batches, random.integer(1, 70), random.integer(1, 150), k,
                           even_leaves(k, 8), false);
      std::vector<std::vector<float>> all_a, expected;
      for (std::int64_t p = 0; p < products; ++p) {
        one.a = random.values(static_cast<std::int64_t>(one.a.size()), false);
        all_a.push_back(one.a);
        expected.push_back(reference(one));
      }
      GemmProblem problem = one.problem;
      problem.products = products;
      on_every_target([&] {
        const GemmPlan plan(problem, 3);
        EXPECT_EQ(plan.flops(), products * GemmPlan(one.problem, 3).flops());
        std::vector<std::vector<float>> out(all_a.size(),
                                            std::vector<float>(at(one.c_size), kUntouched));
        std::vector<const void*> a;
        std::vector<float*> c;
        for (const auto& values : all_a) a.push_back(values.data());
        for (auto& values : out) c.push_back(values.data());
        const void* b = one.b.data();
        for (int part = plan.num_parts(); part-- > 0;) plan.run(a, {&b, 1}, c, part);
        for (std::size_t p = 0; p < out.size(); ++p)
          EXPECT_TRUE(bits(out[p]) == bits(expected[p])) << products << ", " << describe(one);
      });
    }
  }
}

// Some chunks of k lie within a run of A, which is read in place, and others do not.
TEST(Gemm, ChunksThatAreReadInPlaceAndPackedOnes) {
  Random random;
  for (int i = 0; i < num_cases(60); ++i) {
    const std::int64_t m = random.integer(1, 60), n = random.integer(17, 80), k = 900;
    Case c = make_case(random, 1, m, n, k, even_leaves(k, random.integer(1, 20)), false);
    const std::int64_t run = random.integer(50, 400), apart = run + random.integer(1, 9);
    const std::int64_t row = (k / run + 1) * apart;
    for (std::int64_t j = 0; j < k; ++j) c.problem.a.k[at(j)] = j / run * apart + j % run;
    for (std::int64_t j = 0; j < m; ++j) c.problem.a.outer[at(j)] = j * row;
    c.a = random.values(m * row, false);
    expect_exact(c, random);
  }
}

Ends random_ends(Random& random, std::int64_t size) {
  Ends ends;
  for (std::int64_t i = random.integer(0, 3); i-- > 0;) ends.push_back(random.integer(0, size));
  std::sort(ends.begin(), ends.end());
  ends.push_back(size);
  return ends;
}

// The sections of a whole C [batch, m, n], row by row.
std::vector<std::vector<float>> sections_of(const std::vector<float>& c, const Case& whole,
                                            const Ends& row_ends, const Ends& column_ends) {
  const GemmProblem& p = whole.problem;
  std::vector<std::vector<float>> sections;
  for (std::int64_t row = 0; const std::int64_t row_end : row_ends) {
    for (std::int64_t column = 0; const std::int64_t column_end : column_ends) {
      std::vector<float>& section = sections.emplace_back();
      for (const std::int64_t batch : p.c_batch) {
        for (std::int64_t i = row; i < row_end; ++i) {
          const float* first = c.data() + batch + p.c_rows[at(i)];
          section.insert(section.end(), first + column, first + column_end);
        }
      }
      column = column_end;
    }
    row = row_end;
  }
  return sections;
}

// C is cut along rows and columns; there are several products and pieces.
TEST(Gemm, SectionsHoldTheirPartsOfTheResult) {
  Random random;
  for (int i = 0; i < num_cases(24); ++i) {
    const std::int64_t products = i % 3 + 1, length = i % 8 == 0 ? 0 : random.integer(1, 300);
    Case one = make_case(random, i % 4 == 0 ? 2 : 1, random.integer(1, 60), random.integer(1, 100),
                         2 * length, even_leaves(2 * length, 8), false);
    GemmProblem problem = one.problem;
    problem.products = products;
    problem.row_ends = random_ends(random, static_cast<std::int64_t>(problem.a.outer.size()));
    problem.column_ends = random_ends(random, static_cast<std::int64_t>(problem.b.outer.size()));
    if (i % 2 == 0) problem.pieces = 2;  // of the same buffers
    std::vector<std::vector<float>> all_a, expected;
    for (std::int64_t p = 0; p < products; ++p) {
      one.a = random.values(static_cast<std::int64_t>(one.a.size()), false);
      all_a.push_back(one.a);
      for (auto& section : sections_of(reference(one), one, problem.row_ends, problem.column_ends))
        expected.push_back(std::move(section));
    }
    on_every_target([&] {
      const GemmPlan plan(problem, 3);
      std::vector<std::vector<float>> out;
      for (const auto& section : expected) out.emplace_back(section.size(), kUntouched);
      std::vector<const void*> a, b;
      std::vector<float*> c;
      for (const auto& values : all_a) a.insert(a.end(), at(problem.pieces), values.data());
      b.assign(at(problem.pieces), one.b.data());
      for (auto& values : out) c.push_back(values.data());
      for (int part = plan.num_parts(); part-- > 0;) plan.run(a, b, c, part);
      for (std::size_t s = 0; s < out.size(); ++s)
        EXPECT_TRUE(bits(out[s]) == bits(expected[s]))
            << "section " << s << " of " << describe(one);
    });
  }
}

TEST(Gemm, EqualsTheScalarTreeOnLargerShapes) {
  Random random;
  for (int i = 0; i < 6; ++i) {
    const std::int64_t k = random.integer(100, 130);
    expect_exact(make_case(random, 2, random.integer(100, 130), random.integer(100, 130), k,
                           random_leaves(random, k), false),
                 random);
  }
}

TEST(Gemm, EqualsTheScalarTreeWhenKTakesSeveralChunks) {
  Random random;
  for (std::int64_t k : {500, 1024, 2048, 2500, 7000}) {
    for (std::int64_t leaves : {1, 8, 11, 64}) {
      expect_exact(make_case(random, 1, random.integer(1, 20), random.integer(1, 40), k,
                             even_leaves(k, leaves), false),
                   random);
    }
    expect_exact(make_case(random, 1, 15, 33, k, random_leaves(random, k), true), random);
  }
}

TEST(Gemm, EverySizeOfTile) {
  Random random;
  for (std::int64_t m = 1; m <= 30; ++m) {
    for (std::int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63}) {
      for (std::int64_t leaves : {2, 8, 16, 32})  // quads, also of empty grains
        expect_exact(make_case(random, 1, m, n, 11, even_leaves(11, leaves), false), random);
    }
  }
}

// A is packed although its rows are adjacent, because its columns are a power of two apart.
TEST(Gemm, ColumnsThatCompeteForTheCache) {
  Random random;
  constexpr std::int64_t kApart = 4096, kTerms = 256, kRows = 21;
  for (std::int64_t apart : {kApart - 16, kApart}) {
    Case c = make_case(random, 1, kRows, 40, kTerms, even_leaves(kTerms, 8), false);
    c.problem.a = {.batch = {0}, .outer = steps(kRows, 1), .k = steps(kTerms, apart)};
    c.a = random.values(apart * (kTerms - 1) + kRows, false);
    expect_exact(c, random);
  }
}

// A last panel of at most one vector has its own tiles, also if nodes wait between chunks.
TEST(Gemm, NarrowLastPanels) {
  Random random;
  int index = 0;
  for (std::int64_t m : {1, 7, 13, 65, 300}) {
    for (std::int64_t n : {33, 40, 44, 65}) {
      if (!is_tried(index++)) continue;
      expect_exact(make_case(random, 3, m, n, 48, even_leaves(48, 8), false), random);
      expect_exact(make_case(random, 1, m, n, 900, even_leaves(900, 128), false), random);
      expect_exact(make_case(random, 1, m, n, 900, even_leaves(900, 8), false), random);
    }
  }
}

// Rows of A, or their terms, are adjacent, and so are columns of B. All of them are read in place
// if B is small.
Case make_small(Random& random) {
  const std::int64_t batches = random.integer(1, 4), m = random.integer(1, 210);
  const std::int64_t n = 8 * random.integer(1, 12), k = random.integer(1, 80);
  Case c = make_case(random, batches, m, n, k, random_leaves(random, k), random.integer(0, 3) == 0);
  const std::int64_t pad = random.integer(0, 2);
  const std::int64_t a_apart = random.integer(0, 1) == 0 ? 1 : k + pad;
  const std::int64_t b_apart = random.integer(0, 7) == 0 ? 256 : n + pad;
  c.problem.a = {.batch = steps(batches, (m + pad) * (k + pad)),
                 .outer = steps(m, a_apart),
                 .k = steps(k, a_apart == 1 ? m + pad : 1)};
  c.problem.b = {
      .batch = steps(batches, b_apart * k), .outer = steps(n, 1), .k = steps(k, b_apart)};
  const auto size = [](const GemmOperand& x) {
    return x.batch.back() + x.outer.back() + x.k.back() + 1;
  };
  c.a = random.values(size(c.problem.a), false);
  c.b = random.values(size(c.problem.b), false);
  return c;
}

TEST(Gemm, SmallProductsAreReadInPlace) {
  for (int seed = 1; seed <= num_cases(300); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random;
    random.engine.seed(static_cast<std::uint32_t>(seed));
    expect_exact(make_small(random), random);
  }
}

// With few rows, B is read in place if its columns are adjacent.
TEST(Gemm, FewRows) {
  Random random;
  int index = 0;
  for (std::int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 31, 32, 33}) {
    for (std::int64_t n : {1, 5, 16, 17, 32, 63, 80, 256, 257, 700, 1024}) {
      if (!is_tried(index++)) continue;
      const std::int64_t k = random.integer(1, 300);
      expect_exact(make_case(random, 2, m, n, k, even_leaves(k, 8), false), random);
      expect_exact(make_case(random, 1, m, n, k, random_leaves(random, k), true), random);
    }
  }
}

// Few rows, and columns whose terms are adjacent: some distances make the columns compete for the
// cache.
Case make_columns_apart(Random& random, std::int64_t apart) {
  const std::int64_t n = random.integer(1, 70), k = random.integer(256, apart);
  Case c =
      make_case(random, 1, random.integer(1, 4), n, k, even_leaves(k, random.integer(1, 8)), false);
  c.problem.b = {{0}, steps(n, apart), steps(k, 1)};
  c.b = random.values(n * apart, false);
  return c;
}

TEST(Gemm, FewRowsOfColumnsApart) {
  Random random;
  for (int i = 0; i < 40; ++i)
    expect_exact(make_columns_apart(random, i % 2 == 0 ? 1024 : 1000), random);
}

TEST(Gemm, LongSumsWhoseOffsetsRepeat) {
  Random random;
  for (int i = 0; i < num_cases(16); ++i)
    expect_exact(make_images(random, true, random.integer(1, 8), random.integer(1, 20)), random);
}

TEST(Gemm, ManyRowsWhoseOffsetsRepeat) {
  Random random;
  for (int i = 0; i < num_cases(24); ++i)
    expect_exact(make_images(random, false, random.integer(1, 8), random.integer(1, 20)), random);
}

// Rows or columns come in three groups, unequally far apart, and are read in place.
TEST(Gemm, GroupsOfRowsAndColumns) {
  Random random;
  constexpr std::int64_t kTerms = 20;
  const Ends leaves = even_leaves(kTerms, 8);
  for (std::int64_t group : {4, 6, 8, 12, 14, 32}) {
    const auto grouped = [&](std::int64_t stride) {
      std::vector<std::int64_t> out = steps(3 * group, stride);
      for (std::int64_t i = group; i < 3 * group; ++i) out[at(i)] += i < 2 * group ? 4 : 12;
      return out;
    };
    const std::int64_t length = 3 * group + 12;
    for (const GemmOperand& operand : {GemmOperand{{0}, grouped(1), steps(kTerms, length)},
                                       GemmOperand{{0}, grouped(kTerms), steps(kTerms, 1)}}) {
      Case rows = make_case(random, 1, 3 * group, 40, kTerms, leaves, false);
      rows.problem.a = operand;
      rows.a = random.values(length * kTerms, false);
      expect_exact(rows, random);
      Case columns = make_case(random, 1, 3, 3 * group, kTerms, leaves, false);
      columns.problem.b = operand;
      columns.b = random.values(length * kTerms, false);
      expect_exact(columns, random);
    }
  }
}

TEST(Gemm, EmptyOperands) {
  Random random;
  expect_exact(make_case(random, 2, 3, 5, 0, {0, 0, 0}, false), random);
  expect_exact(make_case(random, 2, 0, 5, 4, {1, 4}, false), random);
  expect_exact(make_case(random, 2, 3, 0, 4, {1, 4}, false), random);
  expect_exact(make_case(random, 0, 3, 5, 4, {1, 4}, false), random);
}

// The sum of a grain is -0.0 if its last product underflows; an empty sibling makes it +0.0.
TEST(Gemm, EmptyLeavesAddPositiveZero) {
  Case c;
  c.problem = {{{0}, {0}, {0}}, {{0}, {0}, {0}}, {0}, {0}, {1}};
  c.a = {-1e-30f};
  c.b = {1e-30f};
  c.c_size = 1;
  Random random;
  EXPECT_TRUE(std::signbit(run(c, random)[0]));
  expect_exact(c, random);
  for (const Ends& ends : {Ends{0, 1}, Ends{1, 1}, Ends{0, 0, 1}, Ends{0, 1, 1, 1, 1}}) {
    c.problem.leaf_ends = ends;
    EXPECT_FALSE(std::signbit(run(c, random)[0]));
    expect_exact(c, random);
  }
}

// A device that holds a part of k computes the subtrees of its grains, which are then added up.
TEST(Gemm, ShardsOfKSumToTheWhole) {
  Random random;
  for (std::int64_t k : {8, 65, 100, 256, 1000}) {
    const Case whole = make_case(random, 1, 19, 37, k, even_leaves(k, 8), false);
    const auto expected = bits(run(whole, random));
    for (std::int64_t shards : {2, 4, 8}) {
      std::vector<std::vector<float>> sums;
      for (std::int64_t s = 0; s < shards; ++s) {
        Case shard = whole;
        GemmProblem& p = shard.problem;
        const std::int64_t begin = k * s / shards, end = k * (s + 1) / shards;
        p.a.k = {whole.problem.a.k.begin() + begin, whole.problem.a.k.begin() + end};
        p.b.k = {whole.problem.b.k.begin() + begin, whole.problem.b.k.begin() + end};
        p.leaf_ends.clear();
        for (std::int64_t i = 8 / shards * s; i < 8 / shards * (s + 1); ++i)
          p.leaf_ends.push_back(whole.problem.leaf_ends[at(i)] - begin);
        sums.push_back(run(shard, random));
      }
      for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
        for (std::size_t i = 0; i < sums.size() / 2; ++i) {
          std::vector<float> sum = sums[2 * i];
          for (std::size_t j = 0; j < sum.size(); ++j)
            if (sum[j] != kUntouched) sum[j] += sums[2 * i + 1][j];
          sums[i] = std::move(sum);
        }
      }
      EXPECT_TRUE(bits(sums[0]) == expected) << k << " in " << shards;
    }
  }
}

TEST(Gemm, PartsRunByThreadsGiveTheSameBits) {
  Random random;
  const Case c = make_case(random, 1, 300, 260, 700, even_leaves(700, 8), false);
  const GemmPlan plan(c.problem, 4);
  EXPECT_GE(plan.num_parts(), 4);
  std::vector<float> serial(at(c.c_size), kUntouched), parallel = serial;
  for (int i = 0; i < plan.num_parts(); ++i) plan.run(c.a.data(), c.b.data(), serial.data(), i);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < plan.num_parts(); i += 4)
        plan.run(c.a.data(), c.b.data(), parallel.data(), i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(bits(serial) == bits(parallel));
}

TEST(Gemm, CacheSizesChangeBlocksAndNoBit) {
  Random random;
  const CacheSizes none{.l1 = 0, .l2 = 0};
  const CacheSizes small{.l1 = 4 << 10, .l2 = 16 << 10};
  const CacheSizes large{.l1 = 1 << 20, .l2 = 64 << 20};
  for (const std::int64_t leaves : {1, 3, 40}) {
    const Case c = make_case(random, 1, 150, 170, 900, even_leaves(900, leaves), false);
    const auto expected = bits(reference(c));
    for (const CacheSizes& caches : {none, small, large}) {
      const GemmPlan plan(c.problem, 2, caches);
      std::vector<float> out(at(c.c_size), kUntouched);
      for (int i = 0; i < plan.num_parts(); ++i) plan.run(c.a.data(), c.b.data(), out.data(), i);
      EXPECT_TRUE(bits(out) == expected) << describe(c) << ", L2 " << caches.l2;
    }
    EXPECT_LT(GemmPlan(c.problem, 1, small).scratch_bytes(),
              GemmPlan(c.problem, 1, large).scratch_bytes());
  }
}

// --- bf16

std::vector<bfloat16> narrowed(const std::vector<float>& values) {
  std::vector<bfloat16> out;
  for (const float x : values) out.push_back(bfloat16(x));
  return out;
}

// A bf16 problem; the reference uses its values as f32.
struct NarrowCase {
  Case wide;
  std::vector<bfloat16> a, b;

  explicit NarrowCase(Case of_floats)
      : wide(std::move(of_floats)), a(narrowed(wide.a)), b(narrowed(wide.b)) {
    wide.a.assign(a.begin(), a.end());
    wide.b.assign(b.begin(), b.end());
  }
};

// Makes products close to the least normal number: sums become subnormal and normal again.
void make_tiny(Random& random, std::vector<float>& values) {
  for (float& x : values) x = std::ldexp(x, static_cast<int>(random.integer(-68, -58)));
}

std::vector<float> run(const NarrowCase& c, const GemmPlan& plan) {
  std::vector<float> out(at(c.wide.c_size), kUntouched);
  for (int part = plan.num_parts(); part-- > 0;) plan.run(c.a.data(), c.b.data(), out.data(), part);
  return out;
}

std::vector<float> run(const NarrowCase& c, DotUnit unit, Random& random) {
  return run(c, GemmPlan(c.wide.problem, unit, static_cast<int>(random.integer(1, 8)),
                         random_caches(random)));
}

std::vector<float> run_emulated(const NarrowCase& c, Random& random) {
  const auto workers = static_cast<int>(random.integer(1, 8));
  return run(c, GemmPlan::with_emulated_amx(c.wide.problem, workers, random_caches(random)));
}

std::vector<std::uint32_t> defined_bits(const NarrowCase& c, DotUnit unit) {
  std::vector<float> expected(at(c.wide.c_size), kUntouched);
  Reference{c.wide.problem, c.wide.a.data(), c.wide.b.data(), unit}.run(expected.data());
  return bits(expected);
}

// The emulation of AMX has its packing and its tiles, so these are tested on every machine.
void expect_exact(const NarrowCase& c, Random& random) {
  for (const DotUnit unit : kDotUnits) {
    const auto expected = defined_bits(c, unit);
    on_every_target([&] {
      if (!has_dot_unit(unit)) return;
      EXPECT_TRUE(bits(run(c, unit, random)) == expected) << name(unit) << ", " << describe(c.wide);
    });
    if (unit != DotUnit::amx_bf16) continue;
    EXPECT_TRUE(bits(run_emulated(c, random)) == expected) << "emulated, " << describe(c.wide);
  }
}

TEST(GemmOfBf16, EqualsTheUnitsDefinition) {
  Random random;
  for (int i = 0; i < num_cases(250); ++i) {
    const std::int64_t k = random.integer(1, 130);
    Case c = make_case(random, random.integer(1, 3), random.integer(1, 60), random.integer(1, 70),
                       k, random_leaves(random, k), i % 4 == 0);
    if (i % 3 == 0) {
      make_tiny(random, c.a);
      make_tiny(random, c.b);
    }
    expect_exact(NarrowCase(std::move(c)), random);
  }
}

// For each group of channels and each place, the channels of the group. Rows are as far apart as
// places.
GemmOperand operand_of_groups(Random& random, std::int64_t batches, std::int64_t outer,
                              std::int64_t groups, std::int64_t places, const ChannelGroups& each,
                              std::int64_t gap) {
  const std::int64_t stride = each.size * groups + gap;
  GemmOperand out{
      steps(batches, 6 * stride), two_dims(outer, random.integer(1, 30), stride, 31 * stride), {}};
  for (std::int64_t term = 0; term < each.size * places * groups; ++term) {
    const std::int64_t group = term / each.size / places, place = term / each.size % places;
    const std::int64_t i = term % each.size, channel = each.last_first ? each.size - 1 - i : i;
    out.k.push_back(each.size * group + channel + place % 3 * stride + place / 3 * 33 * stride);
  }
  return out;
}

// Operands whose groups of terms are adjacent in memory, as the channels of a convolution are: at
// any address, with any number of panels, and with grains that cut a group.
void expect_exact_groups(const ChannelGroups& each, int i, Random& random) {
  const std::int64_t places = random.integer(1, 9);
  const std::int64_t groups = random.integer(1, std::max<std::int64_t>(48 / each.size, 1));
  const std::int64_t k = each.size * places * groups, m = random.integer(1, 60);
  const std::int64_t n = random.integer(1, i % 10 == 0 ? 600 : 70);
  Ends leaves = random_leaves(random, k);
  for (std::int64_t& end : leaves) end -= i % 4 == 0 ? 0 : end % each.size;
  Case c = make_case(random, random.integer(1, 2), m, n, k, std::move(leaves), false);
  const auto fill = [&](GemmOperand& operand, std::vector<float>& values, std::int64_t outer) {
    const std::int64_t gap = random.integer(0, 2) * random.integer(1, 2);
    operand =
        operand_of_groups(random, std::ssize(operand.batch), outer, groups, places, each, gap);
    const auto last = [](const auto& list) { return *std::max_element(list.begin(), list.end()); };
    values = random.values(operand.batch.back() + last(operand.outer) + last(operand.k) + 1, false);
  };
  if (i % 3 != 0) fill(c.problem.a, c.a, m);
  if (i % 3 != 1) fill(c.problem.b, c.b, n);
  expect_exact(NarrowCase(std::move(c)), random);
}

TEST(GemmOfBf16, GroupsThatLieInMemory) {
  Random random;
  for (int i = 0; i < num_cases(200); ++i) {
    expect_exact_groups({.size = 2, .last_first = true}, i, random);
    const std::int64_t size = i % 2 == 0 ? 1 << random.integer(0, 5) : random.integer(1, 40);
    expect_exact_groups({.size = size}, i, random);
  }
}

TEST(GemmOfBf16, EveryBitPattern) {
  Random random;
  for (int i = 0; i < num_cases(50); ++i) {
    Case c = make_case(random, 1, 28, 64, 4, even_leaves(4, 1), false);
    for (auto* values : {&c.a, &c.b}) {
      for (float& x : *values)
        x = bfloat16::from_bits(static_cast<std::uint16_t>(random.integer(0, 0xffff)));
    }
    expect_exact(NarrowCase(std::move(c)), random);
  }
}

TEST(GemmOfBf16, EverySizeOfTile) {
  Random random;
  for (std::int64_t m = 1; m <= 30; ++m) {
    for (std::int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63})
      expect_exact(NarrowCase(make_case(random, 1, m, n, 11, even_leaves(11, 8), false)), random);
  }
}

TEST(GemmOfBf16, SumsOfSeveralChunks) {
  Random random;
  for (std::int64_t k : {500, 1024, 2501, 7000}) {
    for (std::int64_t leaves : {1, 8, 11}) {
      expect_exact(NarrowCase(make_case(random, 1, random.integer(1, 20), random.integer(1, 40), k,
                                        even_leaves(k, leaves), false)),
                   random);
    }
  }
}

TEST(GemmOfBf16, FewRowsOfColumnsApart) {
  Random random;
  for (int i = 0; i < 40; ++i)
    expect_exact(NarrowCase(make_columns_apart(random, i % 2 == 0 ? 2048 : 1000)), random);
}

TEST(GemmOfBf16, OffsetsThatRepeat) {
  Random random;
  for (int i = 0; i < num_cases(16); ++i)
    expect_exact(
        NarrowCase(make_images(random, i % 2 == 0, random.integer(1, 8), random.integer(1, 20))),
        random);
}

TEST(GemmOfBf16, EmptyOperandsAndLeaves) {
  Random random;
  expect_exact(NarrowCase(make_case(random, 2, 3, 5, 0, {0, 0, 0}, false)), random);
  expect_exact(NarrowCase(make_case(random, 2, 0, 5, 4, {1, 4}, false)), random);
  expect_exact(NarrowCase(make_case(random, 2, 3, 0, 4, {1, 4}, false)), random);
  for (const Ends& ends : {Ends{0, 1}, Ends{1, 1}, Ends{0, 3, 3, 4}, Ends{1, 1, 2, 5}})
    expect_exact(NarrowCase(make_case(random, 1, 3, 5, ends.back(), ends, false)), random);
}

TEST(GemmOfBf16, PiecesAreOneSum) {
  Random random;
  for (const std::int64_t pieces : {2, 8}) {
    const std::int64_t length = 2 * random.integer(20, 100) + 1, m = 30, n = 40;
    Ends ends;
    for (std::int64_t i = 1; i <= pieces * 8; ++i) ends.push_back(i * length / 8);
    Case plain = make_case(random, 1, m, n, pieces * length, ends, false);
    GemmProblem& p = plain.problem;
    p.a = {{0}, steps(m, pieces * length), steps(pieces * length, 1)};
    p.b = {{0}, steps(n, 1), steps(pieces * length, n)};
    plain.a = random.values(m * pieces * length, false);
    plain.b = random.values(n * pieces * length, false);
    const NarrowCase whole(std::move(plain));
    GemmProblem problem = whole.wide.problem;
    problem.pieces = pieces;
    std::vector<const void*> a, b;
    for (std::int64_t i = 0; i < pieces; ++i) {
      a.push_back(whole.a.data() + i * length);
      b.push_back(whole.b.data() + i * length * n);
    }
    for (std::int64_t i = 0; i < pieces * length; ++i) {
      problem.a.k[at(i)] = i % length;
      problem.b.k[at(i)] = i % length * n;
    }
    for (const DotUnit unit : kDotUnits) {
      if (!has_dot_unit(unit)) continue;
      const GemmPlan plan(problem, unit, 3);
      std::vector<float> out(at(whole.wide.c_size), kUntouched);
      float* c = out.data();
      for (int part = 0; part < plan.num_parts(); ++part) plan.run(a, b, {&c, 1}, part);
      EXPECT_TRUE(bits(out) == bits(run(whole, unit, random))) << name(unit);
    }
  }
}

TEST(GemmOfBf16, EmulationOfAmxOnEveryInstructionSet) {
  Random random;
  for (const std::int64_t k : {3, 40, 64, 300, 1500}) {
    for (const std::int64_t leaves : {1, 3, 8}) {
      const NarrowCase c(make_case(random, 2, random.integer(1, 70), random.integer(1, 70), k,
                                   even_leaves(k, leaves), false));
      const auto expected = defined_bits(c, DotUnit::amx_bf16);
      on_every_target(
          [&] { EXPECT_TRUE(bits(run_emulated(c, random)) == expected) << describe(c.wide); });
    }
  }
}

// Blocks that are full, cut short and empty, in chunks, with nodes that wait between them.
TEST(GemmOfBf16, BlocksOfAmxAreThoseOfItsEmulation) {
  if (!has_dot_unit(DotUnit::amx_bf16)) GTEST_SKIP() << "this machine has no AMX for bf16";
  Random random;
  for (int i = 0; i < num_cases(60); ++i) {
    const std::int64_t k = random.integer(1, i % 6 == 0 ? 5000 : 600);
    Case c = make_case(random, random.integer(1, 2), random.integer(1, 100), random.integer(1, 130),
                       k, random_leaves(random, k), i % 2 == 0);
    if (i % 3 == 0) {
      make_tiny(random, c.a);
      make_tiny(random, c.b);
    }
    const NarrowCase narrow(std::move(c));
    EXPECT_TRUE(bits(run(narrow, DotUnit::amx_bf16, random)) == bits(run_emulated(narrow, random)))
        << describe(narrow.wide);
  }
}

// The units that add term after term are documented to differ only in how they treat subnormals.
TEST(GemmOfBf16, UnitsAgreeWhereNothingIsSubnormal) {
  Random random;
  float x = 0;
  float y = 0;
  for (int i = 0; i < num_cases(1000); ++i) {
    const bfloat16 a(random.value(false));
    const bfloat16 b(static_cast<float>(random.integer(1, 100)));
    if (std::abs(static_cast<float>(a)) < 1e-20F && a != 0.0F) continue;
    x = add_product(DotUnit::portable, x, a, b);
    y = add_product(DotUnit::avx512_bf16, y, a, b);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(x), std::bit_cast<std::uint32_t>(y));
  }
  EXPECT_NE(x, 0.0F);
  EXPECT_EQ(add_product(DotUnit::portable, 0.0F, 0x1p-70F, 0x1p-70F), 0x1p-140F);
  EXPECT_EQ(add_product(DotUnit::avx512_bf16, 0.0F, 0x1p-70F, 0x1p-70F), 0.0F);
}

TEST(GemmOfBf16, UnitsThatAMachineLacksAreRefused) {
  const GemmOperand one{{0}, {0}, {0}};
  on_every_target([&] {
    for (const DotUnit unit : kDotUnits) {
      if (has_dot_unit(unit)) continue;
      EXPECT_THROW(GemmPlan({one, one, {0}, {0}, {1}}, unit, 1), std::invalid_argument);
    }
  });
}

TEST(Gemm, ContradictoryTablesAreRefused) {
  const GemmOperand a{{0}, {0, 1}, {0, 2}}, b{{0}, {0}, {0, 1}};
  EXPECT_NO_THROW(GemmPlan({a, b, {0}, {0, 1}, {1, 2}}, 1));
  EXPECT_THROW(GemmPlan({a, b, {0}, {0}, {2}}, 1), std::invalid_argument);
  EXPECT_THROW(GemmPlan({a, b, {0, 0}, {0, 1}, {2}}, 1), std::invalid_argument);
  EXPECT_THROW(GemmPlan({a, b, {0}, {0, 1}, {1}}, 1), std::invalid_argument);
  EXPECT_THROW(GemmPlan({a, b, {0}, {0, 1}, {2, 1, 2}}, 1), std::invalid_argument);
  EXPECT_THROW(GemmPlan({a, b, {0}, {0, 1}, {}}, 1), std::invalid_argument);
  const auto cut = [&](Ends rows, Ends columns) {
    return GemmPlan({a, b, {0}, {0, 1}, {2}, 1, 1, std::move(rows), std::move(columns)}, 1);
  };
  EXPECT_NO_THROW(cut({1, 2}, {1}));
  EXPECT_THROW(cut({1, 2}, {}), std::invalid_argument);
  EXPECT_THROW(cut({2, 1, 2}, {1}), std::invalid_argument);
  EXPECT_THROW(cut({2}, {2}), std::invalid_argument);
}

}  // namespace
}  // namespace tessera::kernels
