// Tests of conversions of floats to integers against their definition in long double.
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "compile/host/kernels/elementwise/elementwise.h"
#include "compile/host/kernels/on_every_target.h"

namespace tessera::kernels {
namespace {

template <class To>
To defined(long double x) {
  using Limits = std::numeric_limits<To>;
  if (std::isnan(x)) return To{0};
  if (x >= static_cast<long double>(Limits::max())) return Limits::max();
  if (x <= static_cast<long double>(Limits::lowest())) return Limits::lowest();
  return static_cast<To>(std::trunc(x));
}

template <class From>
std::vector<From> floats() {
  using Limits = std::numeric_limits<From>;
  using Bits = std::conditional_t<sizeof(From) == 8, std::uint64_t, std::uint32_t>;
  std::vector<From> x = {From{0},
                         -From{0},
                         Limits::infinity(),
                         -Limits::infinity(),
                         Limits::quiet_NaN(),
                         Limits::max(),
                         Limits::lowest(),
                         Limits::denorm_min()};
  // Next to the limits of every integer type.
  for (int bits = 7; bits <= 64; ++bits) {
    const From limit = std::ldexp(From{1}, bits);
    for (const From at : {limit, -limit}) {
      x.insert(x.end(), {at, at - 1, at + 1, at - From{0.5}, at + From{0.5},
                         std::nextafter(at, From{0}), std::nextafter(at, 2 * at)});
    }
  }
  std::mt19937_64 random(5);
  for (int i = 0; i < 20000; ++i) {
    x.push_back(std::bit_cast<From>(static_cast<Bits>(random())));
    x.push_back(std::ldexp(static_cast<From>(static_cast<std::int64_t>(random())), -(i % 64)));
  }
  return x;
}

template <class To, class From>
void check() {
  const std::string kernel =
      "convert_" + std::string(name(dtype_of<From>)) + "_" + std::string(name(dtype_of<To>));
  const std::vector<From> x = floats<From>();
  testing::on_every_target([&](const char*) {
    std::vector<To> y(x.size());
    const TileInput input{x.data(), false};
    find_tile_kernel(kernel, dtype_of<From>)->run(&input, y.data(), y.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], defined<To>(static_cast<long double>(x[i]))) << kernel << " " << x[i];
  });
}

template <class From>
void check_from() {
  check<std::int8_t, From>();
  check<std::int16_t, From>();
  check<std::int32_t, From>();
  check<std::int64_t, From>();
  check<std::uint8_t, From>();
  check<std::uint16_t, From>();
  check<std::uint32_t, From>();
  check<std::uint64_t, From>();
}

TEST(ElementwiseConvert, FloatsAreTruncatedAndSaturate) {
  if (std::numeric_limits<long double>::digits < 64) GTEST_SKIP() << "long double is f64";
  check_from<float>();
  check_from<double>();
}

template <class Half, class Byte>
void check_bytes() {
  std::vector<Byte> x(256);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<Byte>(i);
  std::vector<float> y(x.size());
  const TileInput input{x.data(), false};
  const std::string kernel =
      "convert_" + std::string(name(dtype_of<Byte>)) + "_" + std::string(name(dtype_of<Half>));
  find_tile_kernel(kernel, dtype_of<Byte>)->run(&input, y.data(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(y[i], float{Half(static_cast<double>(x[i]))}) << kernel << i;
}

TEST(ElementwiseConvert, BytesAreNumbersOfHalfPrecision) {
  check_bytes<bfloat16, std::int8_t>();
  check_bytes<bfloat16, std::uint8_t>();
  check_bytes<float16, std::int8_t>();
  check_bytes<float16, std::uint8_t>();
}

}  // namespace
}  // namespace tessera::kernels
