// Matrices that are hard to factor: residuals and orthogonality as the tests of LAPACK measure
// them, in units of the size times the precision.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/sanitized.h"
#include "compile/host/kernels/linalg/linalg.h"

namespace tessera::kernels {
namespace {

constexpr double kMostUnits = 10.0;  // LAPACK's tests allow 30

enum class Kind {
  random,
  graded,
  reversed,
  singular,
  equal,
  zero,
  huge,
  tiny,
  ones,
  split,
  wilkinson,
  orthogonal
};
constexpr Kind kKinds[] = {Kind::random, Kind::graded, Kind::reversed,  Kind::singular,
                           Kind::equal,  Kind::zero,   Kind::huge,      Kind::tiny,
                           Kind::ones,   Kind::split,  Kind::wilkinson, Kind::orthogonal};

/// Row-major, in f64.
struct Hard {
  std::int64_t rows;
  std::int64_t cols;
  std::vector<double> values = std::vector<double>(static_cast<std::size_t>(rows * cols));

  double& operator()(std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(i * cols + j)];
  }
  double operator()(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(i * cols + j)];
  }
  /// The largest sum of absolute values in a row.
  double norm() const {
    double norm = 0.0;
    for (std::int64_t i = 0; i < rows; ++i) {
      double sum = 0.0;
      for (std::int64_t j = 0; j < cols; ++j) sum += std::abs((*this)(i, j));
      if (!(sum <= norm)) norm = sum;  // also if it is NaN
    }
    return norm;
  }
};

/// x * diag(d) * y; transposes y if asked to.
Hard product_with(const Hard& x, const std::vector<double>& d, const Hard& y, bool is_transposed) {
  Hard result{x.rows, is_transposed ? y.rows : y.cols};
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t k = 0; k < x.cols; ++k) {
      const double factor = x(i, k) * d[static_cast<std::size_t>(k)];
      for (std::int64_t j = 0; j < result.cols; ++j)
        result(i, j) += factor * (is_transposed ? y(j, k) : y(k, j));
    }
  }
  return result;
}

Hard transposed_of(const Hard& x) {
  Hard result{x.cols, x.rows};
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.cols; ++j) result(j, i) = x(i, j);
  }
  return result;
}

template <typename T>
class HardLinalg : public ::testing::Test {
 protected:
  std::mt19937 generator_{3};

  /// How much `found` differs from `wanted`, relative to the largest sum of a row.
  static void expect_close(const Hard& found, const Hard& wanted, std::int64_t n,
                           const std::string& what) {
    Hard difference = found;
    for (std::size_t i = 0; i < difference.values.size(); ++i)
      difference.values[i] -= wanted.values[i];
    const double unit =
        static_cast<double>(n) * static_cast<double>(std::numeric_limits<T>::epsilon());
    const double limit = kMostUnits * unit * wanted.norm();
    EXPECT_LE(difference.norm(), limit) << what << ", n = " << n;
  }

  static void expect_orthonormal(const Hard& q, const std::string& what) {
    Hard unit{q.cols, q.cols};
    for (std::int64_t i = 0; i < q.cols; ++i) unit(i, i) = 1.0;
    const std::vector<double> ones(static_cast<std::size_t>(q.rows), 1.0);
    expect_close(product_with(transposed_of(q), ones, q, false), unit, q.rows, what);
  }

  std::vector<T> make(Kind kind, std::int64_t rows, std::int64_t cols) {
    std::uniform_real_distribution<double> distribution(-1.0, 1.0);
    Hard m{rows, cols};
    for (double& value : m.values) value = distribution(generator_);
    const double range = sizeof(T) == 4 ? 30.0 : 250.0;  // powers of ten
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        const double position = static_cast<double>(i + j) / static_cast<double>(rows + cols);
        double& value = m(i, j);
        if (kind == Kind::graded) value *= std::pow(10.0, -range * position);
        if (kind == Kind::reversed) value *= std::pow(10.0, range * (position - 1.0));
        if (kind == Kind::singular && i > 2) value = m(0, j) * m(i, 0) + m(1, j) * m(i % 3, 0);
        if (kind == Kind::equal) value = i == j ? 2.0 : 0.0;
        if (kind == Kind::zero) value = 0.0;
        if (kind == Kind::huge) value *= sizeof(T) == 4 ? 1e36 : 1e305;
        if (kind == Kind::tiny) value *= sizeof(T) == 4 ? 1e-36 : 1e-305;
        if (kind == Kind::ones) value = 1.0;
        if (kind == Kind::wilkinson) {  // pairs of nearly equal eigenvalues
          const std::int64_t distance = std::abs(i - j);
          value = distance == 0 ? std::abs(static_cast<double>(i) - static_cast<double>(rows / 2))
                                : (distance == 1 ? 1.0 : 0.0);
        }
        if (kind == Kind::split && (i < rows / 2) != (j < cols / 2)) value = 0.0;
      }
    }
    const std::vector<T> values(m.values.begin(), m.values.end());
    return kind == Kind::orthogonal ? orthonormal_columns({rows, cols}, values) : values;
  }
  /// As many orthonormal columns as there can be; the others are zero.
  std::vector<T> orthonormal_columns(MatrixSize size, const std::vector<T>& values) {
    const std::int64_t k = size.least();
    auto q = room(size.rows * k);
    auto r = room(k * size.cols);
    qr(size, false, values.data(), q.data(), r.data());
    auto result = room(size.rows * size.cols);
    for (std::int64_t i = 0; i < size.rows; ++i) {
      for (std::int64_t j = 0; j < k; ++j)
        result[static_cast<std::size_t>(i * size.cols + j)] =
            q[static_cast<std::size_t>(i * k + j)];
    }
    return result;
  }

  /// Divided by a power of two, so that products are in range.
  static Hard hard_of(std::int64_t rows, std::int64_t cols, const std::vector<T>& values,
                      int exponent = 0) {
    Hard m{rows, cols};
    for (std::size_t i = 0; i < values.size(); ++i)
      m.values[i] = std::ldexp(static_cast<double>(values[i]), -exponent);
    return m;
  }
  static int exponent_of(const std::vector<T>& values) {
    double largest = 0.0;
    for (const T value : values) largest = std::max(largest, std::abs(static_cast<double>(value)));
    return largest == 0.0 ? 0 : std::ilogb(largest);
  }
  static std::vector<T> room(std::int64_t count) {
    return std::vector<T>(static_cast<std::size_t>(count));
  }
};

using HardElements = ::testing::Types<float, double>;
TYPED_TEST_SUITE(HardLinalg, HardElements);

constexpr std::int64_t kSizes[] = {1, 2, 3, 7, 16, 33, 64, 65, 129, 200};
// Builds with sanitizers leave out the largest matrices.
auto sizes() { return std::span(kSizes).first(kIsSanitized ? 8 : std::size(kSizes)); }

TYPED_TEST(HardLinalg, QrFactors) {
  for (const Kind kind : kKinds) {
    for (const std::int64_t n : sizes()) {
      const MatrixSize size{n, kind == Kind::random ? n : n / 2 + 1};
      const auto a = this->make(kind, size.rows, size.cols);
      const std::int64_t k = size.least();
      auto q = this->room(size.rows * k);
      auto r = this->room(k * size.cols);
      qr(size, false, a.data(), q.data(), r.data());
      const int exponent = this->exponent_of(a);
      const Hard left = this->hard_of(size.rows, k, q);
      const std::vector<double> ones(static_cast<std::size_t>(k), 1.0);
      const std::string name = "kind " + std::to_string(static_cast<int>(kind));
      this->expect_close(product_with(left, ones, this->hard_of(k, size.cols, r, exponent), false),
                         this->hard_of(size.rows, size.cols, a, exponent), n, name);
      this->expect_orthonormal(left, name);
    }
  }
}

TYPED_TEST(HardLinalg, Eigenvectors) {
  for (const Kind kind : kKinds) {
    for (const std::int64_t n : sizes()) {
      auto a = this->make(kind, n, n);
      const auto at = [&](std::int64_t i, std::int64_t j) -> TypeParam& {
        return a[static_cast<std::size_t>(i * n + j)];
      };
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < i; ++j) at(j, i) = at(i, j);
      }
      auto w = this->room(n);
      auto v = this->room(n * n);
      eigh(n, a.data(), w.data(), v.data());
      const int exponent = this->exponent_of(a);
      const Hard vectors = this->hard_of(n, n, v);
      const std::string name = "kind " + std::to_string(static_cast<int>(kind));
      this->expect_close(
          product_with(vectors, this->hard_of(n, 1, w, exponent).values, vectors, true),
          this->hard_of(n, n, a, exponent), n, name);
      this->expect_orthonormal(vectors, name);
      EXPECT_TRUE(std::is_sorted(w.begin(), w.end()));
    }
  }
}

TYPED_TEST(HardLinalg, SingularVectors) {
  for (const Kind kind : kKinds) {
    for (const std::int64_t n : sizes()) {
      const std::int64_t other = n % 2 == 0 ? n : n / 3 + 1;
      const MatrixSize size = n % 3 == 0 ? MatrixSize{other, n} : MatrixSize{n, other};
      const auto a = this->make(kind, size.rows, size.cols);
      const std::int64_t k = size.least();
      auto u = this->room(size.rows * k);
      auto s = this->room(k);
      auto vt = this->room(k * size.cols);
      svd(size, a.data(), u.data(), s.data(), vt.data());
      const int exponent = this->exponent_of(a);
      const Hard left = this->hard_of(size.rows, k, u);
      const Hard right = this->hard_of(k, size.cols, vt);
      const std::string name = "kind " + std::to_string(static_cast<int>(kind));
      this->expect_close(product_with(left, this->hard_of(k, 1, s, exponent).values, right, false),
                         this->hard_of(size.rows, size.cols, a, exponent), n, name);
      this->expect_orthonormal(left, name);
      this->expect_orthonormal(transposed_of(right), name);
      EXPECT_TRUE(std::is_sorted(s.rbegin(), s.rend()));
      EXPECT_GE(s.back(), TypeParam{0}) << name << ", n = " << n;
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
