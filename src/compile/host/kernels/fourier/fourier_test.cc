// Transforms of many lengths against sums in long double, and on every instruction set.
#include "compile/host/kernels/fourier/fourier.h"

#include <cmath>
#include <complex>
#include <gtest/gtest.h>
#include <numbers>
#include <random>

#include "compile/host/kernels/on_every_target.h"

namespace tessera::kernels {

namespace {

using Wide = std::complex<long double>;

std::vector<double> random_numbers(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<float>(uniform(random)));
  return numbers;
}

/// The sums with exp(-2 pi i j k / length), or exp(+...).
std::vector<Wide> sums(const std::vector<Wide>& x, bool is_inverse) {
  const auto n = std::ssize(x);
  std::vector<Wide> roots;
  for (std::int64_t k = 0; k < n; ++k) {
    const long double angle = 2 * std::numbers::pi_v<long double> * static_cast<long double>(k) /
                              static_cast<long double>(n);
    roots.emplace_back(std::cos(angle), is_inverse ? std::sin(angle) : -std::sin(angle));
  }
  std::vector<Wide> result(x.size());
  for (std::int64_t k = 0; k < n; ++k) {
    for (std::int64_t j = 0; j < n; ++j) {
      result[static_cast<std::size_t>(k)] +=
          x[static_cast<std::size_t>(j)] * roots[static_cast<std::size_t>(j * k % n)];
    }
  }
  return result;
}

/// The root of the mean square of the errors, relative to that of the numbers, in epsilons.
template <typename T>
double error_of(const std::vector<Wide>& expected, Parts<const T> found) {
  long double error = 0.0;
  long double size = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::norm(Wide(found.re[i], found.im[i]) - expected[i]);
    size += std::norm(expected[i]);
  }
  return static_cast<double>(std::sqrt(error / size)) /
         static_cast<double>(std::numeric_limits<T>::epsilon());
}

template <typename T>
struct Numbers {
  std::vector<T> re;
  std::vector<T> im;

  explicit Numbers(std::int64_t count)
      : re(static_cast<std::size_t>(count)), im(static_cast<std::size_t>(count)) {}
  Parts<T> parts() { return {re.data(), im.data()}; }
  std::vector<Wide> row(std::int64_t row, std::int64_t length) const {
    std::vector<Wide> numbers;
    for (std::int64_t i = row * length; i < (row + 1) * length; ++i) {
      numbers.emplace_back(re[static_cast<std::size_t>(i)], im[static_cast<std::size_t>(i)]);
    }
    return numbers;
  }
};

template <typename T>
Numbers<T> random_rows(std::int64_t count) {
  Numbers<T> x(count);
  const std::vector<double> numbers = random_numbers(2 * count, 7);
  for (std::size_t i = 0; i < x.re.size(); ++i) {
    x.re[i] = static_cast<T>(numbers[2 * i]);
    x.im[i] = static_cast<T>(numbers[2 * i + 1]);
  }
  return x;
}

/// The largest error that is allowed: the passes round, and their roundings mostly cancel.
double most_error(std::int64_t length) {
  return 0.8 + 0.15 * std::log2(static_cast<double>(length));
}

template <typename T>
void expect_sums(std::int64_t length, std::int64_t rows) {
  SCOPED_TRACE("length " + std::to_string(length));
  Numbers<T> x = random_rows<T>(rows * length);
  Numbers<T> y(rows * length);
  const auto plan = fourier_plan<T>(length);
  for (const bool is_inverse : {false, true}) {
    if (is_inverse) {
      plan->invert(rows, x.parts(), y.parts(), T{2});
    } else {
      plan->transform(rows, x.parts(), y.parts(), T{2});
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<Wide> expected = sums(x.row(row, length), is_inverse);
      for (Wide& number : expected) number *= 2;
      EXPECT_LE(error_of<T>(expected, y.parts() + row * length), most_error(length));
    }
  }
}

template <typename T>
void expect_real_sums(std::int64_t length, std::int64_t rows) {
  SCOPED_TRACE("length " + std::to_string(length));
  const std::int64_t kept = length / 2 + 1;
  Numbers<T> x = random_rows<T>(rows * length);
  std::fill(x.im.begin(), x.im.end(), T{0});
  Numbers<T> y(rows * kept);
  const auto plan = real_fourier_plan<T>(length);
  plan->transform(rows, x.re.data(), y.parts(), T{1});
  Numbers<T> back(rows * length);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<Wide> expected = sums(x.row(row, length), false);
    expected.resize(static_cast<std::size_t>(kept));
    EXPECT_LE(error_of<T>(expected, y.parts() + row * kept), most_error(length));
    EXPECT_EQ(y.im[static_cast<std::size_t>(row * kept)], T{0});
    y.im[static_cast<std::size_t>(row * kept)] = T{9};  // is not read
  }
  plan->invert(rows, y.parts(), back.re.data(), T{1} / static_cast<T>(length));
  for (std::int64_t row = 0; row < rows; ++row) {
    EXPECT_LE(error_of<T>(x.row(row, length), back.parts() + row * length), 2 * most_error(length));
  }
}

const std::vector<std::int64_t> kLongLengths = {256,  512,  1000, 1024, 1021, 1536, 2048,
                                                2187, 2809, 3125, 3721, 4096, 6007};

TEST(FourierTest, ShortLengths) {
  for (std::int64_t length = 1; length <= 200; ++length) {
    expect_sums<float>(length, 3);
    expect_sums<double>(length, 3);
    expect_real_sums<float>(length, 3);
    expect_real_sums<double>(length, 3);
  }
}

TEST(FourierTest, LongLengths) {
  for (const std::int64_t length : kLongLengths) {
    expect_sums<float>(length, 1);
    expect_sums<double>(length, 1);
    expect_real_sums<float>(length, 1);
    expect_real_sums<double>(length, 1);
  }
}

template <typename T>
std::vector<T> transformed(std::int64_t length, std::int64_t rows, std::int64_t first,
                           std::int64_t count) {
  Numbers<T> x = random_rows<T>(rows * length);
  Numbers<T> y(count * length);
  fourier_plan<T>(length)->transform(count, x.parts() + first * length, y.parts(), T{3});
  y.re.insert(y.re.end(), y.im.begin(), y.im.end());
  return y.re;
}

TEST(FourierTest, EveryTargetGivesTheSameBits) {
  for (const std::int64_t length : {3, 24, 60, 67, 253, 288, 1000, 1021, 2048}) {
    SCOPED_TRACE("length " + std::to_string(length));
    const std::vector<float> narrow = transformed<float>(length, 5, 0, 5);
    const std::vector<double> wide = transformed<double>(length, 5, 0, 5);
    testing::on_every_target([&](const char*) {
      EXPECT_EQ(transformed<float>(length, 5, 0, 5), narrow);
      EXPECT_EQ(transformed<double>(length, 5, 0, 5), wide);
    });
  }
}

TEST(FourierTest, ARowHasTheSameBitsInAnyCompany) {
  for (const std::int64_t length : {5, 24, 67, 131, 253, 1000, 1024}) {
    SCOPED_TRACE("length " + std::to_string(length));
    const std::vector<float> all = transformed<float>(length, 40, 0, 40);
    const auto size = static_cast<std::ptrdiff_t>(length);
    for (const std::ptrdiff_t row : {0, 17, 39}) {
      const std::vector<float> one = transformed<float>(length, 40, row, 1);
      const auto from = all.begin() + row * size;
      EXPECT_EQ(std::vector<float>(one.begin(), one.begin() + size),
                std::vector<float>(from, from + size));
    }
  }
}

/// The transforms of the columns of a matrix.
template <typename T>
void expect_columns(std::int64_t length, std::int64_t columns) {
  SCOPED_TRACE("length " + std::to_string(length));
  Numbers<T> x = random_rows<T>(length * columns);
  Numbers<T> y(length * columns);
  const auto plan = fourier_plan<T>(length);
  const std::int64_t together = plan->columns_together();
  for (std::int64_t first = 0; first < columns; first += together) {
    const std::int64_t count = std::min(columns - first, together);
    plan->transform_columns(count, columns, x.parts() + first, y.parts() + first, T{3});
  }
  Numbers<T> row(length);
  Numbers<T> expected(length);
  for (std::int64_t column = 0; column < columns; ++column) {
    Numbers<T> found(length);
    for (std::int64_t i = 0; i < length; ++i) {
      const auto from = static_cast<std::size_t>(i * columns + column);
      const auto to = static_cast<std::size_t>(i);
      row.re[to] = x.re[from];
      row.im[to] = x.im[from];
      found.re[to] = y.re[from];
      found.im[to] = y.im[from];
    }
    plan->transform(1, row.parts(), expected.parts(), T{3});
    EXPECT_EQ(found.re, expected.re);
    EXPECT_EQ(found.im, expected.im);
  }
}

TEST(FourierTest, ColumnsHaveTheBitsOfRows) {
  for (const std::int64_t length : {1, 2, 7, 24, 131, 256, 1000, 1024}) {
    expect_columns<float>(length, 85);
    expect_columns<double>(length, 39);
    expect_columns<float>(length, 3);
  }
  expect_columns<float>(std::int64_t{1} << 17, 2);
}

}  // namespace

}  // namespace tessera::kernels
