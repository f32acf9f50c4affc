// Factors have the bits of their definition on every instruction set: simple loops in which each
// element is a chain of fused multiply-adds in the order of the terms.
#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <vector>

#include "base/sanitized.h"
#include "compile/host/kernels/linalg/linalg.h"
#include "compile/host/kernels/linalg/matrix_memory.h"
#include "compile/host/kernels/linalg/strips.h"
#include "compile/host/kernels/on_every_target.h"

namespace tessera::kernels {
namespace {

/// A row-major matrix.
template <typename T>
struct Table {
  std::int64_t rows;
  std::int64_t cols;
  std::vector<T> values = std::vector<T>(static_cast<std::size_t>(rows * cols));

  T& operator()(std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(i * cols + j)];
  }
  T operator()(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(i * cols + j)];
  }
  bool operator==(const Table& other) const {
    return std::memcmp(values.data(), other.values.data(), values.size() * sizeof(T)) == 0;
  }
};

template <typename T>
class LinalgBits : public ::testing::Test {
 protected:
  std::mt19937 generator_{11};

  std::int64_t draw_size() {
    return std::uniform_int_distribution<std::int64_t>(1, 130)(generator_);
  }
  Table<T> random(std::int64_t rows, std::int64_t cols) {
    Table<T> m{rows, cols};
    std::uniform_real_distribution<double> distribution(-1.0, 1.0);
    for (T& value : m.values) value = static_cast<T>(distribution(generator_));
    return m;
  }
  Table<T> dominant(std::int64_t n) {
    Table<T> m = random(n, n);
    for (std::int64_t i = 0; i < n; ++i) m(i, i) += static_cast<T>(n);
    return m;
  }
};

using BitsElements = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LinalgBits, BitsElements);

constexpr int kBitsRounds = num_cases(10);

TYPED_TEST(LinalgBits, CholeskyIsItsDefinition) {
  using T = TypeParam;
  for (int round = 0; round < kBitsRounds; ++round) {
    const std::int64_t n = this->draw_size();
    const Table<T> a = this->dominant(n);
    Table<T> wanted{n, n};
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        T rest = a(i, j);
        for (std::int64_t k = 0; k < j; ++k) rest = std::fma(-wanted(i, k), wanted(j, k), rest);
        wanted(i, j) = i == j ? std::sqrt(rest) : rest / wanted(j, j);
      }
    }
    testing::on_every_target([&](const char* /*name*/) {
      Table<T> l{n, n};
      cholesky(n, a.values.data(), l.values.data());
      EXPECT_TRUE(l == wanted) << "n = " << n;
    });
  }
}

template <typename T>
struct LuOf {
  Table<T> packed;
  std::vector<std::int32_t> pivots;
};

template <typename T>
LuOf<T> defined_lu(Table<T> m) {
  LuOf<T> result{m, {}};
  for (std::int64_t k = 0; k < std::min(m.rows, m.cols); ++k) {
    std::int64_t pivot = k;
    for (std::int64_t i = k; i < m.rows; ++i) {
      if (std::abs(m(i, k)) > std::abs(m(pivot, k))) pivot = i;
    }
    result.pivots.push_back(static_cast<std::int32_t>(pivot));
    for (std::int64_t j = 0; j < m.cols; ++j) std::swap(m(k, j), m(pivot, j));
    if (m(k, k) == T{0}) continue;
    for (std::int64_t i = k + 1; i < m.rows; ++i) {
      m(i, k) /= m(k, k);
      for (std::int64_t j = k + 1; j < m.cols; ++j) m(i, j) = std::fma(-m(i, k), m(k, j), m(i, j));
    }
  }
  result.packed = m;
  return result;
}

TYPED_TEST(LinalgBits, LuIsItsDefinition) {
  using T = TypeParam;
  for (int round = 0; round < kBitsRounds; ++round) {
    const MatrixSize size{this->draw_size(), this->draw_size()};
    Table<T> a = this->random(size.rows, size.cols);
    if (round % 3 == 0) {  // singular: two equal rows, and a column of zeros
      for (std::int64_t j = 0; j < size.cols; ++j) a(size.rows - 1, j) = a(0, j);
      for (std::int64_t i = 0; i < size.rows; ++i) a(i, size.cols / 2) = T{0};
    }
    const LuOf<T> wanted = defined_lu(a);
    testing::on_every_target([&](const char* /*name*/) {
      Table<T> packed{size.rows, size.cols};
      std::vector<std::int32_t> pivots(wanted.pivots.size());
      std::vector<std::int32_t> permutation(static_cast<std::size_t>(size.rows));
      lu(size, a.values.data(), packed.values.data(), pivots.data(), permutation.data());
      EXPECT_TRUE(packed == wanted.packed) << size.rows << " x " << size.cols;
      EXPECT_EQ(pivots, wanted.pivots);
    });
  }
}

/// The element of the matrix op(a) of which `form` reads a triangle.
template <typename T>
T element_of(const TriangularForm& form, const Table<T>& a, std::int64_t i, std::int64_t j) {
  return form.transpose_a ? a(j, i) : a(i, j);
}

template <typename T>
Table<T> defined_solution(const TriangularForm& form, const Table<T>& a, Table<T> x) {
  const bool is_lower = form.lower != form.transpose_a;
  const std::int64_t n = a.rows;
  const std::int64_t sides = form.left_side ? x.cols : x.rows;
  for (std::int64_t side = 0; side < sides; ++side) {
    const auto at = [&](std::int64_t i) -> T& { return form.left_side ? x(i, side) : x(side, i); };
    const bool is_forward = is_lower == form.left_side;
    for (std::int64_t step = 0; step < n; ++step) {
      const std::int64_t i = is_forward ? step : n - 1 - step;
      for (std::int64_t before = 0; before < step; ++before) {
        const std::int64_t j = is_forward ? before : n - 1 - before;
        const T factor = form.left_side ? element_of(form, a, i, j) : element_of(form, a, j, i);
        at(i) = std::fma(-factor, at(j), at(i));
      }
      if (!form.unit_diagonal) at(i) /= a(i, i);
    }
  }
  return x;
}

TYPED_TEST(LinalgBits, SolutionsOfTriangularSystemsAreTheirDefinition) {
  using T = TypeParam;
  for (int i = 0; i < 16; ++i) {
    const TriangularForm form{(i & 1) != 0, (i & 2) != 0, (i & 4) != 0, (i & 8) != 0};
    const MatrixSize size{this->draw_size(), this->draw_size()};
    const std::int64_t sides = form.left_side ? size.cols : size.rows;
    Table<T> a = this->dominant(form.left_side ? size.rows : size.cols);
    if (form.unit_diagonal) {
      for (T& value : a.values) value /= static_cast<T>(a.rows);
    }
    const Table<T> b = this->random(size.rows, size.cols);
    const Table<T> wanted = defined_solution(form, a, b);
    testing::on_every_target([&](const char* /*name*/) {
      Table<T> x{size.rows, size.cols};
      const std::int64_t cut =
          std::uniform_int_distribution<std::int64_t>(0, sides)(this->generator_);
      for (const auto& [first, end] : {std::pair{std::int64_t{0}, cut}, {cut, sides}}) {
        triangular_solve(form, size, a.values.data(), b.values.data(), x.values.data(), first, end);
      }
      EXPECT_TRUE(x == wanted) << "form " << i << ", " << size.rows << " x " << size.cols;
    });
  }
}

/// Calls compute(results) for each instruction set; the results must be equal.
template <typename T>
void expect_same_bits(std::vector<Table<T>> results,
                      const std::function<void(std::vector<Table<T>>&)>& compute) {
  std::vector<Table<T>> wanted;
  testing::on_every_target([&](const char* /*name*/) {
    compute(results);
    if (wanted.empty()) wanted = results;
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_TRUE(results[i] == wanted[i])
          << "result " << i << ", " << results[i].rows << " x " << results[i].cols;
    }
  });
}

TYPED_TEST(LinalgBits, OtherFactorsAreTheSameOnEveryInstructionSet) {
  using T = TypeParam;
  for (int round = 0; round < kBitsRounds; ++round) {
    const MatrixSize size{this->draw_size(), this->draw_size()};
    const std::int64_t k = size.least();
    const Table<T> a = this->random(size.rows, size.cols);
    expect_same_bits<T>({{size.rows, k}, {k, size.cols}}, [&](auto& out) {
      qr(size, false, a.values.data(), out[0].values.data(), out[1].values.data());
    });
    expect_same_bits<T>({{size.rows, k}, {k, 1}, {k, size.cols}}, [&](auto& out) {
      svd(size, a.values.data(), out[0].values.data(), out[1].values.data(), out[2].values.data());
    });
    const Table<T> symmetric = this->random(k, k);  // its lower triangle
    expect_same_bits<T>({{k, 1}, {k, k}}, [&](auto& out) {
      eigh(k, symmetric.values.data(), out[0].values.data(), out[1].values.data());
    });
  }
}

TYPED_TEST(LinalgBits, TurnsOfRowsAreTheirDefinition) {
  using T = TypeParam;
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(this->generator_);
  };
  for (int round = 0; round < kBitsRounds; ++round) {
    MatrixMemory memory;
    const std::int64_t rows = draw(2, 40);
    const Table<T> x = this->random(rows, draw(1, 40));
    std::vector<Sweep> sweeps;
    std::vector<Turn<T>> turns;
    Table<T> wanted = x;
    for (std::int64_t s = draw(1, 9); s > 0; --s) {
      const bool is_repeated = !sweeps.empty() && s % 2 == 0;
      const std::int64_t first = is_repeated ? sweeps.back().first : draw(0, rows - 2);
      sweeps.push_back({first, draw(1, rows - 1 - first)});
      for (std::int64_t i = first; i < first + sweeps.back().count; ++i) {
        const Table<T> turn = this->random(1, 2);
        turns.push_back({turn(0, 0), turn(0, 1)});
        const auto [cosine, sine] = turns.back();
        for (std::int64_t j = 0; j < x.cols; ++j) {
          const T above = wanted(i, j);
          const T below = wanted(i + 1, j);
          wanted(i, j) = std::fma(-sine, below, cosine * above);
          wanted(i + 1, j) = std::fma(sine, above, cosine * below);
        }
      }
    }
    testing::on_every_target([&](const char* /*name*/) {
      const Strips<T> strips = load_strips(memory, rows, x.cols, x.values.data(), x.cols);
      turn_rows(StripTurns<T>{.turns = turns.data(),
                              .sweeps = sweeps.data(),
                              .num_sweeps = static_cast<std::int64_t>(sweeps.size()),
                              .x = strips.data,
                              .x_stride = strips.stride(),
                              .strips = strips.count()});
      Table<T> found{rows, x.cols};
      store_strips(strips, found.values.data(), x.cols);
      EXPECT_TRUE(found == wanted) << rows << " x " << x.cols;
    });
  }
}

}  // namespace
}  // namespace tessera::kernels
