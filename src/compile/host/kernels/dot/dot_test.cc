// Products against the definition of their sums, on every instruction set.
#include "compile/host/kernels/dot/dot.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

#include "compile/host/kernels/on_every_target.h"

namespace tessera::kernels {
namespace {

/// Sizes of a product [batch, rows, terms] x [batch, terms, columns]; B is [batch, columns, terms]
/// in memory if `is_transposed`.
struct Sizes {
  std::int64_t batch, rows, columns, terms;
  bool is_transposed;
  std::vector<std::int64_t> leaf_ends;
};

GemmProblem problem_of(const Sizes& s) {
  GemmProblem p;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    p.a.batch.push_back(b * s.rows * s.terms);
    p.b.batch.push_back(b * s.terms * s.columns);
    p.c_batch.push_back(b * s.rows * s.columns);
  }
  for (std::int64_t i = 0; i < s.rows; ++i) {
    p.a.outer.push_back(i * s.terms);
    p.c_rows.push_back(i * s.columns);
  }
  for (std::int64_t j = 0; j < s.columns; ++j)
    p.b.outer.push_back(s.is_transposed ? j * s.terms : j);
  for (std::int64_t k = 0; k < s.terms; ++k) {
    p.a.k.push_back(k);
    p.b.k.push_back(s.is_transposed ? k : k * s.columns);
  }
  p.leaf_ends = s.leaf_ends;
  return p;
}

template <class T>
T tree_of(const std::vector<T>& leaves, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return leaves[begin];
  const std::size_t middle = begin + std::bit_floor(end - begin - 1);
  return static_cast<T>(tree_of(leaves, begin, middle) + tree_of(leaves, middle, end));
}

template <class T>
std::vector<T> defined(const GemmProblem& p, const std::vector<T>& a, const std::vector<T>& b,
                       std::size_t size) {
  std::vector<T> c(size);
  for (std::size_t batch = 0; batch < p.c_batch.size(); ++batch) {
    for (std::size_t i = 0; i < p.a.outer.size(); ++i) {
      for (std::size_t j = 0; j < p.b.outer.size(); ++j) {
        std::vector<T> leaves;
        std::int64_t k = 0;
        for (const std::int64_t end : p.leaf_ends) {
          T sum{};
          for (; k < end; ++k) {
            const auto at = static_cast<std::size_t>(k);
            const T x = a[static_cast<std::size_t>(p.a.batch[batch] + p.a.outer[i] + p.a.k[at])];
            const T y = b[static_cast<std::size_t>(p.b.batch[batch] + p.b.outer[j] + p.b.k[at])];
            if constexpr (std::is_floating_point_v<T>) {
              sum = std::fma(x, y, sum);
            } else {
              sum = static_cast<T>(sum + x * y);
            }
          }
          leaves.push_back(sum);
        }
        const std::int64_t to = p.c_batch[batch] + p.c_rows[i] + static_cast<std::int64_t>(j);
        c[static_cast<std::size_t>(to)] = tree_of(leaves, 0, leaves.size());
      }
    }
  }
  return c;
}

template <class T>
T drawn(std::mt19937_64& random) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(random())) * 0x1p-63;
  } else {
    return static_cast<T>(random());
  }
}

template <class T>
void compare(const Sizes& sizes, DType dtype, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  std::vector<T> a(count(sizes.batch * sizes.rows * sizes.terms));
  std::vector<T> b(count(sizes.batch * sizes.columns * sizes.terms));
  for (T& x : a) x = drawn<T>(random);
  for (T& x : b) x = drawn<T>(random);
  const GemmProblem problem = problem_of(sizes);
  const std::vector<T> wanted =
      defined(problem, a, b, count(sizes.batch * sizes.rows * sizes.columns));
  testing::on_every_target([&](const char*) {
    const DotPlan plan(problem, dtype, 3);
    std::vector<T> c(wanted.size());
    for (int part = 0; part < plan.num_parts(); ++part) {
      plan.run(reinterpret_cast<const std::byte*>(a.data()),
               reinterpret_cast<const std::byte*>(b.data()), reinterpret_cast<std::byte*>(c.data()),
               part);
    }
    EXPECT_EQ(std::memcmp(c.data(), wanted.data(), c.size() * sizeof(T)), 0);
  });
}

TEST(Dot, IsTheDefinedSum) {
  const Sizes all[] = {
      {1, 1, 1, 1, false, {1}},           {2, 5, 9, 7, false, {2, 4, 7}},
      {1, 4, 8, 16, true, {16}},          {3, 13, 17, 33, true, {5, 5, 20, 30, 33}},
      {1, 70, 90, 130, false, {64, 130}}, {1, 3, 2, 0, false, {0}},
  };
  for (const Sizes& sizes : all) {
    SCOPED_TRACE(sizes.terms);
    compare<double>(sizes, DType::f64, 1);
    compare<std::uint64_t>(sizes, DType::i64, 2);
    compare<std::uint32_t>(sizes, DType::u32, 3);
  }
}

TEST(Dot, HasBlocks) {
  const Sizes all[] = {
      {1, 190, 275, 40, false, {20, 40}},
      {1, 15, 33, 1030, true, {520, 520, 800, 1030}},
      {1, 345, 1, 300, false, {150, 300}},
      {1, 1, 345, 300, true, {300}},
  };
  for (const Sizes& sizes : all) {
    SCOPED_TRACE(sizes.rows);
    compare<double>(sizes, DType::f64, 4);
    compare<std::uint64_t>(sizes, DType::u64, 5);
    compare<std::uint32_t>(sizes, DType::i32, 6);
  }
}

TEST(Dot, RandomSizes) {
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto up_to = [&](std::int64_t most) {
      return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
    };
    const std::int64_t most_rows = random() % 2 == 0 ? 3 : 40;
    Sizes sizes = {up_to(3), up_to(most_rows), up_to(70), 0, random() % 2 == 0, {}};
    for (std::int64_t leaf = up_to(9); leaf > 0; --leaf) {
      if (random() % 4 != 0) sizes.terms += up_to(90);
      sizes.leaf_ends.push_back(sizes.terms);
    }
    compare<double>(sizes, DType::f64, seed);
    compare<std::uint64_t>(sizes, DType::i64, seed);
    compare<std::uint32_t>(sizes, DType::u32, seed);
  }
}

// A sum whose products underflow is -0.0, and +0.0 after an empty grain.
TEST(Dot, KeepsTheSignsOfZeros) {
  for (const bool has_empty : {false, true}) {
    Sizes sizes = {
        1, 3,     5,
        4, false, has_empty ? std::vector<std::int64_t>{4, 4} : std::vector<std::int64_t>{2, 4}};
    const GemmProblem problem = problem_of(sizes);
    const std::vector<double> a(12, -1e-300), b(20, 1e-300);
    testing::on_every_target([&](const char*) {
      std::vector<double> c(15, 1);
      const DotPlan plan(problem, DType::f64, 1);
      plan.run(reinterpret_cast<const std::byte*>(a.data()),
               reinterpret_cast<const std::byte*>(b.data()), reinterpret_cast<std::byte*>(c.data()),
               0);
      for (const double x : c) EXPECT_EQ(std::bit_cast<std::uint64_t>(x) >> 63, has_empty ? 0 : 1);
    });
  }
}

}  // namespace
}  // namespace tessera::kernels
