// Tests of the functions of f64 against those of the C library for long double.
#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/sanitized.h"
#include "compile/host/kernels/elementwise/elementwise.h"
#include "compile/host/kernels/on_every_target.h"

namespace tessera::kernels {
namespace {

using Wide = long double;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Function {
  Wide (*of)(Wide);
  double low, high;  // where most arguments are
  double max_error;  // in ulp
};

Wide logistic_of(Wide x) { return 1 / (1 + std::exp(-x)); }

const std::map<std::string_view, Function>& functions() {
  static const std::map<std::string_view, Function> kFunctions = {
      {"exp", {std::exp, -745, 710, 1.0}},     {"expm1", {std::expm1, -40, 710, 2.0}},
      {"exp2", {std::exp2, -1075, 1025, 1.5}}, {"log", {std::log, 0, 4, 1.0}},
      {"log1p", {std::log1p, -1, 4, 1.5}},     {"log2", {std::log2, 0, 4, 1.0}},
      {"tanh", {std::tanh, -20, 20, 2.5}},     {"logistic", {logistic_of, -40, 40, 2.5}},
      {"sinh", {std::sinh, -711, 711, 2.5}},   {"cosh", {std::cosh, -711, 711, 1.5}},
      {"asinh", {std::asinh, -1e3, 1e3, 3.0}}, {"acosh", {std::acosh, 1, 1e3, 3.0}},
      {"atanh", {std::atanh, -1, 1, 3.0}},     {"atan", {std::atan, -8, 8, 2.0}},
      {"sin", {std::sin, -200, 200, 1.0}},     {"cos", {std::cos, -200, 200, 1.0}},
      {"tan", {std::tan, -200, 200, 2.5}},     {"asin", {std::asin, -1, 1, 1.0}},
      {"acos", {std::acos, -1, 1, 1.0}},       {"cbrt", {std::cbrt, -1e6, 1e6, 1.0}},
      {"erf", {std::erf, -6, 6, 2.5}},         {"erfc", {std::erfc, -6, 28, 4.0}},
  };
  return kFunctions;
}

std::vector<double> arguments(const Function& function) {
  std::vector<double> x = {0.0, -0.0, 1.0, -1.0, 0.5, -0.5, kInf, -kInf, kNan};
  for (const double value :
       {std::numeric_limits<double>::denorm_min(), 1e-310, 2.2250738585072014e-308,
        std::numeric_limits<double>::max(), 709.78271289338397, 745.13321910194122})
    x.insert(x.end(), {value, -value});
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> most(function.low, function.high), near(-2, 2);
  for (int i = 0; i < num_cases(100000); ++i) {
    x.push_back(most(random));
    x.push_back(near(random));
    x.push_back(1.0 + std::ldexp(near(random), -i % 52));
    x.push_back(std::ldexp(near(random), -i % 60));
    x.push_back(std::bit_cast<double>(random()));
  }
  return x;
}

std::vector<double> results(std::string_view name, const std::vector<double>& x) {
  const TileKernel* kernel = find_tile_kernel(name, DType::f64);
  EXPECT_NE(kernel, nullptr) << name;
  std::vector<double> y(x.size());
  const TileInput input{x.data(), false};
  if (kernel != nullptr) kernel->run(&input, y.data(), y.size());
  return y;
}

// The distance of `got` from `want`, in units of the last place of the f64 closest to `want`.
double error_in_ulp(double got, Wide want) {
  const auto nearest = static_cast<double>(want);
  if (std::isnan(nearest) || std::isinf(nearest) || std::isnan(got) || std::isinf(got))
    return got == nearest || (std::isnan(got) && std::isnan(nearest)) ? 0 : kInf;
  if (nearest == 0 && got == 0 && std::signbit(got) != std::signbit(nearest)) return kInf;
  const double ulp = std::nextafter(std::fabs(nearest), kInf) - std::fabs(nearest);
  return static_cast<double>(std::fabs(got - want) / ulp);
}

TEST(ElementwiseDouble, ErrorsAreBounded) {
  if (std::numeric_limits<Wide>::digits < 64) GTEST_SKIP() << "long double is f64";
  for (const auto& [name, function] : functions()) {
    const std::vector<double> x = arguments(function);
    const std::vector<double> y = results(name, x);
    double worst = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      // By its definition, logistic is 0 where exp(-x) is infinite.
      if (name == "logistic" && x[i] < -708) continue;
      const double error = error_in_ulp(y[i], function.of(x[i]));
      if (error > worst) at = i;
      worst = std::max(worst, error);
    }
    EXPECT_LE(worst, function.max_error) << name << "(" << x[at] << ") = " << y[at];
    RecordProperty(std::string(name) + "_ulp", std::to_string(worst));
  }
}

TEST(ElementwiseDouble, EveryTargetGivesTheSameBits) {
  for (const auto& [name, function] : functions()) {
    SCOPED_TRACE(std::string(name));
    const std::vector<double> x = arguments(function);
    std::vector<double> first;
    testing::on_every_target([&](const char*) {
      const std::vector<double> y = results(name, x);
      if (first.empty()) first = y;
      ASSERT_EQ(y.size(), first.size());
      for (std::size_t i = 0; i < y.size(); ++i) {
        if (std::isnan(y[i]) && std::isnan(first[i])) continue;
        ASSERT_EQ(std::bit_cast<std::uint64_t>(y[i]), std::bit_cast<std::uint64_t>(first[i]))
            << x[i];
      }
    });
  }
}

TEST(ElementwiseDouble, RestsOfRunsHaveTheSameBits) {
  for (const auto& [name, function] : functions()) {
    std::vector<double> x = arguments(function);
    x.resize(67);
    const std::vector<double> whole = results(name, x);
    for (std::size_t n = 1; n < x.size(); ++n) {
      const std::vector<double> part =
          results(name, std::vector<double>(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(n)));
      ASSERT_EQ(std::memcmp(part.data(), whole.data(), n * sizeof(double)), 0) << name << " " << n;
    }
  }
}

TEST(ElementwiseDouble, Atan2IsClose) {
  if (std::numeric_limits<Wide>::digits < 64) GTEST_SKIP() << "long double is f64";
  const std::vector<double> y = arguments({nullptr, -8, 8, 0});
  std::vector<double> x(y.size());
  // Pairs every special value with every special value.
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i < 21 * 21 ? y[i / 21] : y[i * 7 % x.size()];
  std::vector<double> rise = y;
  for (std::size_t i = 0; i < 21 * 21; ++i) rise[i] = y[i % 21];
  const TileInput inputs[] = {{rise.data(), false}, {x.data(), false}};
  testing::on_every_target([&](const char*) {
    std::vector<double> got(x.size());
    find_tile_kernel("atan2", DType::f64)->run(inputs, got.data(), got.size());
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = error_in_ulp(got[i], std::atan2(Wide{rise[i]}, Wide{x[i]}));
      ASSERT_LE(error, 3.0) << rise[i] << " " << x[i] << " " << got[i];
      worst = std::max(worst, error);
    }
    RecordProperty("atan2_ulp", std::to_string(worst));
  });
}

// The error of erf or erfc of y tells how far y is from the exact inverse.
double inverse_error(double x, double y) {
  const Wide a = std::fabs(Wide{x}), z = std::fabs(Wide{y});
  const Wide missed = a < 0.5L ? std::erf(z) - a : (1 - a) - std::erfc(z);
  const Wide slope = 1.12837916709551257390L * std::exp(-z * z);
  return error_in_ulp(static_cast<double>(z), z - missed / slope);
}

TEST(ElementwiseDouble, ErfInvInvertsErf) {
  if (std::numeric_limits<Wide>::digits < 64) GTEST_SKIP() << "long double is f64";
  std::vector<double> x = {0.9999999999999999, 1e-300, 0.5, 2.2250738585072014e-308};
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> most(-1, 1);
  for (int i = 0; i < 200000; ++i) {
    x.push_back(most(random));
    x.push_back(std::ldexp(most(random), -(i % 300)));
    x.push_back(1.0 - std::ldexp(1.0 + most(random), -1 - i % 51));
  }
  std::erase_if(x, [](double value) { return std::fabs(value) >= 1.0; });
  testing::on_every_target([&](const char*) {
    const std::vector<double> y = results("erf_inv", x);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(std::signbit(y[i]), std::signbit(x[i]));
      worst = std::max(worst, inverse_error(x[i], y[i]));
      ASSERT_LE(inverse_error(x[i], y[i]), 4.0) << x[i] << " " << y[i];
    }
    RecordProperty("erf_inv_ulp", std::to_string(worst));
    const std::vector<double> edges = results("erf_inv", {1.0, -1.0, 1.5, kNan, -0.0, kInf});
    EXPECT_EQ(edges[0], kInf);
    EXPECT_EQ(edges[1], -kInf);
    EXPECT_TRUE(std::isnan(edges[2]) && std::isnan(edges[3]) && std::isnan(edges[5]));
    EXPECT_TRUE(edges[4] == 0.0 && std::signbit(edges[4]));
  });
}

TEST(ElementwiseDouble, PowIsClose) {
  if (std::numeric_limits<Wide>::digits < 64) GTEST_SKIP() << "long double is f64";
  const std::vector<double> edges = {0.0,  -0.0,   0.5, -0.5,    1.0,    -1.0,       1.5,    -1.5,
                                     2.0,  -2.0,   3.0, -3.0,    1e300,  -1e300,     kInf,   -kInf,
                                     kNan, 1e-310, 7.0, -1e-310, 0x1p53, 0x1p52 + 1, -0x1p53};
  std::vector<double> x, y;
  for (const double base : edges) {
    for (const double exponent : edges) {
      x.push_back(base);
      y.push_back(exponent);
    }
  }
  std::mt19937_64 random(9);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int i = 0; i < 100000; ++i) {
    const double base = i % 3 == 0 ? 1.0 + std::ldexp(unit(random) - 0.5, -(i % 50))
                                   : std::exp2(2000 * unit(random) - 1000);
    x.push_back(i % 7 == 0 ? std::bit_cast<double>(random()) : base);
    // Most powers are finite.
    const double most = 1090 / std::max(std::abs(std::log2(base)), 1e-300);
    y.push_back(i % 5 == 0 ? std::round(20 * unit(random)) : most * (2 * unit(random) - 1));
  }
  std::vector<double> first;
  testing::on_every_target([&](const char*) {
    std::vector<double> got(x.size());
    const TileInput inputs[] = {{x.data(), false}, {y.data(), false}};
    find_tile_kernel("pow", DType::f64)->run(inputs, got.data(), got.size());
    if (first.empty()) first = got;
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = error_in_ulp(got[i], std::pow(Wide{x[i]}, Wide{y[i]}));
      worst = std::max(worst, error);
      ASSERT_LE(error, 1.5) << x[i] << " " << y[i] << " " << got[i];
      ASSERT_TRUE(std::isnan(got[i]) ||
                  std::bit_cast<std::uint64_t>(got[i]) == std::bit_cast<std::uint64_t>(first[i]));
    }
    RecordProperty("pow_ulp", std::to_string(worst));
  });
}

TEST(ElementwiseDouble, SelectsByBytes) {
  testing::on_every_target([](const char*) {
    for (std::size_t n = 0; n < 40; ++n) {
      std::vector<std::uint8_t> which(n);
      std::vector<double> x(n, 1.5), y(n), got(n);
      for (std::size_t i = 0; i < n; ++i) {
        which[i] = i % 3 == 1 ? 1 : 0;
        y[i] = -static_cast<double>(i);
      }
      const TileInput inputs[] = {{which.data(), false}, {x.data(), true}, {y.data(), false}};
      if (n > 0) find_tile_kernel("select", DType::f64)->run(inputs, got.data(), n);
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(got[i], i % 3 == 1 ? 1.5 : y[i]) << n;
    }
  });
}

TEST(ElementwiseDouble, MaximaPutZerosAndNanInOrder) {
  testing::on_every_target([](const char*) {
    const std::vector<double> x = {0.0, -0.0, -0.0, 1.0, kNan, 1.0, -kInf, 2.0, 2.0};
    const std::vector<double> y = {-0.0, 0.0, -0.0, 2.0, 1.0, kNan, kInf, 1.0, 2.0};
    const std::vector<double> larger = {0.0, 0.0, -0.0, 2.0, kNan, kNan, kInf, 2.0, 2.0};
    const std::vector<double> less = {-0.0, -0.0, -0.0, 1.0, kNan, kNan, -kInf, 1.0, 2.0};
    const TileInput inputs[] = {{x.data(), false}, {y.data(), false}};
    std::vector<double> got(x.size());
    for (const auto& [name, want] : {std::pair{"max", larger}, std::pair{"min", less}}) {
      find_tile_kernel(name, DType::f64)->run(inputs, got.data(), got.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (std::isnan(want[i])) {
          EXPECT_TRUE(std::isnan(got[i])) << name << i;
        } else {
          EXPECT_EQ(std::bit_cast<std::uint64_t>(got[i]), std::bit_cast<std::uint64_t>(want[i]))
              << name << i;
        }
      }
    }
  });
}

}  // namespace
}  // namespace tessera::kernels
