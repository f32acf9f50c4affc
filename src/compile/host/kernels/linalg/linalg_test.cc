// Factors of random matrices multiply to the matrix, and depend on nothing but its elements.
#include "compile/host/kernels/linalg/linalg.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace tessera::kernels {
namespace {

/// A matrix in f64, however it was computed.
struct Dense {
  std::int64_t rows;
  std::int64_t cols;
  std::vector<double> values;

  double operator()(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(i * cols + j)];
  }
};

template <typename T>
Dense dense(std::int64_t rows, std::int64_t cols, const std::vector<T>& values) {
  return {rows, cols, {values.begin(), values.end()}};
}

Dense transposed(const Dense& x) {
  Dense result{x.cols, x.rows, std::vector<double>(x.values.size())};
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.cols; ++j) {
      result.values[static_cast<std::size_t>(j * x.rows + i)] = x(i, j);
    }
  }
  return result;
}

Dense operator*(const Dense& x, const Dense& y) {
  Dense result{x.rows, y.cols, std::vector<double>(static_cast<std::size_t>(x.rows * y.cols))};
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t k = 0; k < x.cols; ++k) {
      for (std::int64_t j = 0; j < y.cols; ++j) {
        result.values[static_cast<std::size_t>(i * y.cols + j)] += x(i, k) * y(k, j);
      }
    }
  }
  return result;
}

/// Element [i, j] is kept where `keep(i, j)`, otherwise 0; the diagonal may become 1.
template <typename Keep>
Dense part(const Dense& x, std::int64_t rows, std::int64_t cols, Keep keep, bool unit = false) {
  Dense result{rows, cols, std::vector<double>(static_cast<std::size_t>(rows * cols))};
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      double& to = result.values[static_cast<std::size_t>(i * cols + j)];
      if (keep(i, j)) to = x(i, j);
      if (unit && i == j) to = 1.0;
    }
  }
  return result;
}

void expect_near(const Dense& found, const Dense& wanted, double tolerance) {
  ASSERT_EQ(found.values.size(), wanted.values.size());
  double largest = 0.0;
  for (double value : wanted.values) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < found.values.size(); ++i) {
    ASSERT_NEAR(found.values[i], wanted.values[i], tolerance * largest) << "element " << i;
  }
}

void expect_orthonormal_columns(const Dense& q, double tolerance) {
  const Dense unit = part(
      q, q.cols, q.cols, [](std::int64_t, std::int64_t) { return false; }, true);
  expect_near(transposed(q) * q, unit, tolerance);
}

template <typename T>
class Linalg : public ::testing::Test {
 protected:
  std::mt19937 generator_{7};

  static double tolerance(std::int64_t n) {
    return 64.0 * static_cast<double>(n) * static_cast<double>(std::numeric_limits<T>::epsilon());
  }
  std::vector<T> random(std::int64_t rows, std::int64_t cols) {
    std::uniform_real_distribution<double> distribution(-1.0, 1.0);
    std::vector<T> values(static_cast<std::size_t>(rows * cols));
    for (T& value : values) value = static_cast<T>(distribution(generator_));
    return values;
  }
  /// Symmetric; positive definite if `shift` is large enough.
  std::vector<T> symmetric(std::int64_t n, double shift) {
    std::vector<T> a = random(n, n);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < i; ++j) a[at(j * n + i)] = a[at(i * n + j)];
      a[at(i * n + i)] += static_cast<T>(shift);
    }
    return a;
  }
  std::int64_t draw_size() {
    return std::uniform_int_distribution<std::int64_t>(1, 90)(generator_);
  }
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  static std::vector<T> zeros(std::int64_t count) { return std::vector<T>(at(count)); }
};

using Elements = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Linalg, Elements);

constexpr int kRounds = 12;

TYPED_TEST(Linalg, CholeskyFactorsMultiplyToTheMatrix) {
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t n = this->draw_size();
    const auto a = this->symmetric(n, static_cast<double>(n));
    auto l = this->zeros(n * n);
    cholesky(n, a.data(), l.data());
    const Dense factor = dense(n, n, l);
    expect_near(factor * transposed(factor), dense(n, n, a), this->tolerance(n));
  }
}

TYPED_TEST(Linalg, LuFactorsMultiplyToThePermutedMatrix) {
  for (int round = 0; round < kRounds; ++round) {
    const MatrixSize size{this->draw_size(), this->draw_size()};
    const auto a = this->random(size.rows, size.cols);
    auto packed = this->zeros(size.rows * size.cols);
    std::vector<std::int32_t> pivots(this->at(size.least()));
    std::vector<std::int32_t> permutation(this->at(size.rows));
    lu(size, a.data(), packed.data(), pivots.data(), permutation.data());
    const Dense both = dense(size.rows, size.cols, packed);
    const Dense l = part(both, size.rows, size.least(), std::greater<>{}, true);
    const Dense u = part(both, size.least(), size.cols, std::less_equal<>{});
    Dense permuted = dense(size.rows, size.cols, a);
    const Dense whole = permuted;
    for (std::int64_t i = 0; i < size.rows; ++i) {
      for (std::int64_t j = 0; j < size.cols; ++j) {
        permuted.values[this->at(i * size.cols + j)] = whole(permutation[this->at(i)], j);
      }
    }
    expect_near(l * u, permuted, this->tolerance(size.rows));
    for (double factor : part(both, size.rows, size.least(), std::greater<>{}).values) {
      EXPECT_LE(std::abs(factor), 1.0);
    }
  }
}

TYPED_TEST(Linalg, SolutionsOfTriangularSystemsFit) {
  for (int form = 0; form < 16; ++form) {
    const TriangularForm f{(form & 1) != 0, (form & 2) != 0, (form & 4) != 0, (form & 8) != 0};
    const MatrixSize size{this->draw_size(), this->draw_size()};
    const std::int64_t n = f.left_side ? size.rows : size.cols;
    auto a = this->random(n, n);
    // Rows of small elements: solutions stay small also where the diagonal counts as 1.
    for (auto& element : a) element /= static_cast<TypeParam>(n);
    for (std::int64_t i = 0; i < n; ++i) a[this->at(i * n + i)] += 1;
    const auto b = this->random(size.rows, size.cols);
    auto x = this->zeros(size.rows * size.cols);
    const std::int64_t sides = f.left_side ? size.cols : size.rows;
    triangular_solve(f, size, a.data(), b.data(), x.data(), 0, sides / 2);
    triangular_solve(f, size, a.data(), b.data(), x.data(), sides / 2, sides);
    const auto is_read = [&](std::int64_t i, std::int64_t j) {
      return i == j || (j < i) == f.lower;
    };
    Dense matrix = part(dense(n, n, a), n, n, is_read, f.unit_diagonal);
    if (f.transpose_a) matrix = transposed(matrix);
    const Dense solution = dense(size.rows, size.cols, x);
    expect_near(f.left_side ? matrix * solution : solution * matrix, dense(size.rows, size.cols, b),
                this->tolerance(n));
  }
}

TYPED_TEST(Linalg, QrFactorsMultiplyToTheMatrix) {
  for (int round = 0; round < kRounds; ++round) {
    const MatrixSize size{this->draw_size(), this->draw_size()};
    const auto a = this->random(size.rows, size.cols);
    const bool is_full = round % 2 == 0;
    const std::int64_t k = is_full ? size.rows : size.least();
    auto q = this->zeros(size.rows * k);
    auto r = this->zeros(k * size.cols);
    qr(size, is_full, a.data(), q.data(), r.data());
    const Dense left = dense(size.rows, k, q);
    expect_near(left * dense(k, size.cols, r), dense(size.rows, size.cols, a),
                this->tolerance(size.rows));
    expect_orthonormal_columns(left, this->tolerance(size.rows));
  }
}

TYPED_TEST(Linalg, ReflectionsMultiplyToQ) {
  const MatrixSize size{70, 41};
  const auto a = this->random(size.rows, size.cols);
  auto packed = this->zeros(size.rows * size.cols);
  auto taus = this->zeros(size.cols);
  geqrf(size, a.data(), packed.data(), taus.data());
  auto q = this->zeros(size.rows * size.cols);
  householder_product(size, size.cols, packed.data(), taus.data(), q.data());
  auto wanted = this->zeros(size.rows * size.cols);
  auto r = this->zeros(size.cols * size.cols);
  qr(size, false, a.data(), wanted.data(), r.data());
  expect_near(dense(size.rows, size.cols, q), dense(size.rows, size.cols, wanted),
              this->tolerance(size.rows));
}

TYPED_TEST(Linalg, EigenvectorsAreScaledByTheMatrix) {
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t n = this->draw_size();
    const auto a = this->symmetric(n, 0.0);
    auto w = this->zeros(n);
    auto v = this->zeros(n * n);
    eigh(n, a.data(), w.data(), v.data());
    const Dense vectors = dense(n, n, v);
    Dense scaled = vectors;
    for (std::int64_t i = 0; i < n * n; ++i) scaled.values[this->at(i)] *= w[this->at(i % n)];
    expect_near(dense(n, n, a) * vectors, scaled, this->tolerance(n));
    expect_orthonormal_columns(vectors, this->tolerance(n));
    EXPECT_TRUE(std::is_sorted(w.begin(), w.end()));
  }
}

TYPED_TEST(Linalg, SingularFactorsMultiplyToTheMatrix) {
  for (int round = 0; round < kRounds; ++round) {
    const MatrixSize size{this->draw_size(), this->draw_size()};
    const std::int64_t k = size.least();
    const auto a = this->random(size.rows, size.cols);
    auto u = this->zeros(size.rows * k);
    auto s = this->zeros(k);
    auto vt = this->zeros(k * size.cols);
    svd(size, a.data(), u.data(), s.data(), vt.data());
    Dense scaled = dense(size.rows, k, u);
    for (std::int64_t i = 0; i < size.rows * k; ++i) {
      scaled.values[this->at(i)] *= s[this->at(i % k)];
    }
    expect_near(scaled * dense(k, size.cols, vt), dense(size.rows, size.cols, a),
                this->tolerance(size.rows));
    expect_orthonormal_columns(dense(size.rows, k, u), this->tolerance(size.rows));
    expect_orthonormal_columns(transposed(dense(k, size.cols, vt)), this->tolerance(size.cols));
    EXPECT_TRUE(std::is_sorted(s.rbegin(), s.rend()));
  }
}

TYPED_TEST(Linalg, BitsDoNotDependOnWhereTheMatrixLies) {
  const std::int64_t n = 75;
  const auto a = this->symmetric(n, static_cast<double>(n));
  for (std::int64_t offset : {1, 2, 3}) {
    std::vector<TypeParam> moved(this->at(n * n + offset));
    std::copy(a.begin(), a.end(), moved.begin() + offset);
    auto here = this->zeros(n * n);
    auto there = this->zeros(n * n + offset);
    cholesky(n, a.data(), here.data());
    cholesky(n, moved.data() + offset, there.data() + offset);
    EXPECT_TRUE(std::equal(here.begin(), here.end(), there.begin() + offset));
    auto w = this->zeros(n);
    eigh(n, a.data(), w.data(), here.data());
    eigh(n, moved.data() + offset, w.data(), there.data() + offset);
    EXPECT_TRUE(std::equal(here.begin(), here.end(), there.begin() + offset));
  }
}

TYPED_TEST(Linalg, WhatHasNoFactorsIsNan) {
  const std::vector<TypeParam> indefinite = {1, 2, 2, 1};
  auto l = this->zeros(4);
  cholesky(2, indefinite.data(), l.data());
  for (TypeParam element : l) EXPECT_TRUE(std::isnan(element));
}

TYPED_TEST(Linalg, SingularTrianglesDivideByZero) {
  const std::vector<TypeParam> singular = {1, 0, 1, 0};
  const std::vector<TypeParam> b = {1, 1, 1, 2, 1, 0};
  auto x = this->zeros(6);
  triangular_solve({true, true, false, false}, {2, 3}, singular.data(), b.data(), x.data(), 0, 3);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(x[i], 1);
  EXPECT_EQ(x[3], std::numeric_limits<TypeParam>::infinity());
  EXPECT_TRUE(std::isnan(x[4]));
  EXPECT_EQ(x[5], -std::numeric_limits<TypeParam>::infinity());
}

}  // namespace
}  // namespace tessera::kernels
