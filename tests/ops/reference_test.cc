// Compares the reference with numbers written out here, for delicate values of delicate ops.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "compile/reference/interpret.h"
#include "ops/emit.h"
#include "tests/ops/arrays.h"

namespace tessera {
namespace {

using ir::Builder;
using ir::ValueId;
using testing::array;
using testing::elements;
using testing::evaluate;
using testing::expect_elements;
using testing::kInf;
using testing::kNan;

constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();

template <typename T>
std::vector<T> unary(const char* op, std::vector<T> x) {
  return elements<T>(evaluate({array(std::move(x))},
                              [&](Builder& b, auto in) { return b.emit(op, {}, {in[0]}); }));
}

template <typename T>
std::vector<T> binary(const char* op, std::vector<T> x, std::vector<T> y) {
  return elements<T>(evaluate({array(std::move(x)), array(std::move(y))}, [&](Builder& b, auto in) {
    return b.emit(op, {}, {in[0], in[1]});
  }));
}

TEST(Reference, MaxAndMinOrderZerosAndKeepNan) {
  const std::vector<float> x = {-0.0f, 0.0f, kNan, 1.0f, kInf, -1.0f};
  const std::vector<float> y = {0.0f, -0.0f, 1.0f, kNan, 2.0f, -2.0f};
  expect_elements<float>(binary("max", x, y), {0.0f, 0.0f, kNan, kNan, kInf, -1.0f});
  expect_elements<float>(binary("min", x, y), {-0.0f, -0.0f, kNan, kNan, 2.0f, -2.0f});
}

TEST(Reference, IntegersDivideLikeRiscV) {
  using I = std::vector<std::int32_t>;
  const I x = {7, -7, 7, 0, kMin, 5};
  const I y = {2, 2, 0, 0, -1, -2};
  EXPECT_EQ(binary("div", x, y), (I{3, -3, -1, -1, kMin, -2}));
  EXPECT_EQ(binary("rem", x, y), (I{1, -1, 7, 0, 0, 1}));
  using U = std::vector<std::uint32_t>;
  EXPECT_EQ(binary("div", U{7, 7}, U{0, 4294967295U}), (U{4294967295U, 0}));
  EXPECT_EQ(binary("rem", U{7, 7}, U{0, 4294967295U}), (U{7, 7}));
}

TEST(Reference, IntegersWrap) {
  using I = std::vector<std::int32_t>;
  EXPECT_EQ(binary("add", I{kMax}, I{1}), I{kMin});
  EXPECT_EQ(binary("sub", I{kMin}, I{1}), I{kMax});
  EXPECT_EQ(binary("mul", I{65536}, I{65536}), I{0});
  EXPECT_EQ(unary("neg", I{kMin, 3}), (I{kMin, -3}));
  EXPECT_EQ(unary("abs", I{kMin, -3}), (I{kMin, 3}));
}

TEST(Reference, FloatRemaindersHaveTheSignOfTheDividend) {
  const auto rest =
      binary<float>("rem", {5.5f, -5.5f, 5.5f, 1.0f, -0.0f}, {2.0f, 2.0f, -2.0f, kInf, 3.0f});
  expect_elements<float>(rest, {1.5f, -1.5f, 1.5f, 1.0f, -0.0f});
}

TEST(Reference, ShiftsPastTheEndGiveZerosOrSigns) {
  using I = std::vector<std::int32_t>;
  using U = std::vector<std::uint32_t>;
  const I x = {-8, -8, 1, 1, 1};
  const I count = {1, 32, 31, 32, -1};
  EXPECT_EQ(binary("shift_left", x, count), (I{-16, 0, kMin, 0, 0}));
  EXPECT_EQ(binary("shift_right_logical", x, count), (I{2147483644, 0, 0, 0, 0}));
  EXPECT_EQ(binary("shift_right_arithmetic", x, count), (I{-4, -1, 0, 0, 0}));
  EXPECT_EQ(binary("shift_right_arithmetic", U{0x80000000U}, U{40}), U{0xFFFFFFFFU});
}

TEST(Reference, SignKeepsZerosAndNan) {
  expect_elements<float>(unary<float>("sign", {-0.0f, 0.0f, kNan, -3.0f, kInf}),
                         {-0.0f, 0.0f, kNan, -1.0f, 1.0f});
}

TEST(Reference, ConvertSaturates) {
  auto converted = [](std::vector<float> x, DType dtype) {
    return evaluate({array(std::move(x))},
                    [&](Builder& b, auto in) { return ops::convert(b, in[0], dtype); });
  };
  EXPECT_EQ(
      elements<std::int32_t>(converted({1.9f, -1.9f, 3e9f, -3e9f, kNan, kInf, -kInf}, DType::i32)),
      (std::vector<std::int32_t>{1, -1, kMax, kMin, 0, kMax, kMin}));
  EXPECT_EQ(elements<std::uint32_t>(converted({-1.0f, 5e9f, 3e9f, kNan}, DType::u32)),
            (std::vector<std::uint32_t>{0, 4294967295U, 3000000000U, 0}));
  EXPECT_EQ(elements<bool>(converted({0.0f, -0.0f, 0.5f, kNan}, DType::boolean)),
            (std::vector<bool>{false, false, true, true}));
  const auto wide = evaluate({array<std::int32_t>({16777217, -1})}, [](Builder& b, auto in) {
    return ops::convert(b, in[0], DType::f32);
  });
  EXPECT_EQ(elements<float>(wide), (std::vector<float>{16777216.0f, -1.0f}));
}

TEST(Reference, ClampPrefersTheUpperBound) {
  const auto clamped = evaluate(
      {array<float>({0, 0, 0, 2}), array<float>({-1, 9, kNan, 0}), array<float>({1, 1, 1, 1})},
      [](Builder& b, auto in) { return ops::clamp(b, in[0], in[1], in[2]); });
  expect_elements<float>(elements<float>(clamped), {0, 1, kNan, 1});
}

TEST(Reference, FmaRoundsOnce) {
  const float x = 1.0f + 0x1p-12f;
  const auto result =
      evaluate({array<float>({x}), array<float>({x}), array<float>({-(1.0f + 0x1p-11f)})},
               [](Builder& b, auto in) { return b.emit("fma", {}, in); });
  EXPECT_EQ(elements<float>(result), std::vector<float>{0x1p-24f});
}

TEST(Reference, ArgmaxTakesTheFirst) {
  const auto best = evaluate(
      {array<float>({1, 3, 3, -0.0f, 0.0f, -1, 1, kNan, kNan, -kInf, -kInf, -kInf}, {4, 3})},
      [](Builder& b, auto in) {
        return b.emit("argmax", {{"dim", 1}}, {in[0]});
      });
  EXPECT_EQ(elements<std::int32_t>(best), (std::vector<std::int32_t>{1, 0, 1, 0}));
}

TEST(Reference, SortIsStableWithNanLast) {
  std::vector<float> keys = {kNan, 2, 0.0f, -0.0f, -kInf, 2};
  const auto sorted =
      testing::evaluate_all({array(keys), array<std::int32_t>({0, 1, 2, 3, 4, 5})},
                            [](Builder& b, auto in) { return ops::sort(b, std::move(in), 0); });
  expect_elements<float>(elements<float>(sorted[0]), {-kInf, 0.0f, -0.0f, 2, 2, kNan});
  EXPECT_EQ(elements<std::int32_t>(sorted[1]), (std::vector<std::int32_t>{4, 2, 3, 1, 5, 0}));
}

TEST(Reference, GatherFillsOutsideTheRange) {
  const std::vector<std::int32_t> rows = {1, -1, 2, 0};
  const auto floats = evaluate({array<float>({1, 2, 3, 4}, {2, 2}), array(rows)},
                               [](Builder& b, auto in) { return ops::gather(b, in[0], in[1], 0); });
  expect_elements<float>(elements<float>(floats), {3, 4, kNan, kNan, kNan, kNan, 1, 2});
  const auto integers =
      evaluate({array<std::int32_t>({7, 8}), array(rows)},
               [](Builder& b, auto in) { return ops::gather(b, in[0], in[1], 0); });
  EXPECT_EQ(elements<std::int32_t>(integers), (std::vector<std::int32_t>{8, kMin, kMin, 7}));
}

TEST(Reference, ScatterAddDropsWhatIsOutside) {
  const auto sums =
      evaluate({array<std::int32_t>({2, 0, 2, -1, 3}), array<float>({1, 2, 4, 8, 16})},
               [](Builder& b, auto in) { return ops::scatter_add(b, in[0], in[1], 0, 3); });
  EXPECT_EQ(elements<float>(sums), (std::vector<float>{2, 0, 5}));
}

TEST(Reference, ReductionsOfNothing) {
  auto reduced = [](const char* op) {
    return elements<float>(evaluate({array<float>({}, {0, 2})}, [&](Builder& b, auto in) {
      return b.emit(op, {{"dims", ir::Ints{0}}}, {in[0]});
    }));
  };
  EXPECT_EQ(reduced("reduce_sum"), (std::vector<float>{0, 0}));
  EXPECT_EQ(reduced("reduce_max"), (std::vector<float>{-kInf, -kInf}));
  EXPECT_EQ(reduced("reduce_min"), (std::vector<float>{kInf, kInf}));
}

TEST(Reference, ErfInvInvertsErf) {
  for (double x : {-0.999999, -0.99, -0.5, -1e-9, 0.0, 0.3, 0.75, 0.9989, 0.9991, 1 - 1e-12}) {
    const double y = unary<double>("erf_inv", {x})[0];
    EXPECT_NEAR(std::erf(y), x, 4e-16);
    const float single = unary<float>("erf_inv", {static_cast<float>(x)})[0];
    if (std::fabs(x) < 0.9999) {
      EXPECT_NEAR(single, y, 4e-6 * std::fabs(y));
    }
  }
  expect_elements<float>(unary<float>("erf_inv", {1, -1, 2}), {kInf, -kInf, kNan});
  expect_elements<double>(unary<double>("erf_inv", {1, -1, 2}), {kInf, -kInf, kNan});
}

TEST(Reference, BitsAreRead) {
  const auto bits = evaluate({array<float>({1.0f, -0.0f})}, [](Builder& b, auto in) {
    return ops::bitcast(b, in[0], DType::u32);
  });
  EXPECT_EQ(elements<std::uint32_t>(bits), (std::vector<std::uint32_t>{0x3F800000U, 0x80000000U}));
}

}  // namespace
}  // namespace tessera
