// Arrays of f16, f64 and integers of 8, 16 and 64 bits through the public functions.
#include <array>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>

#include <tessera/error.h>
#include <tessera/functions.h>
#include <tessera/grad.h>
#include <tessera/jit.h>
#include <tessera/ops.h>

#include "api/test_support.h"

namespace tessera {
namespace {

constexpr std::int64_t kLarge = (std::int64_t{1} << 60) + 3;  // not representable as a double

TEST(Dtypes, KeepTheirElements) {
  EXPECT_EQ(array<std::int64_t>({kLarge, -kLarge}).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{kLarge, -kLarge}));
  EXPECT_EQ(scalar(std::uint64_t{1} << 63U).item<std::uint64_t>(), std::uint64_t{1} << 63U);
  EXPECT_EQ(to_string(array<std::int8_t>({-128, 65})), "i8[2] [-128, 65]");
  EXPECT_EQ(to_string(array<float16>({float16(65504.0F), float16(0.1F)})),
            "f16[2] [65504, 0.099975586]");
  const Array bytes = array<std::uint8_t>({0, 7, 255});
  EXPECT_EQ(bytes.dtype(), DType::u8);
  EXPECT_EQ(bytes.to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{0, 7, 255}));
  EXPECT_EQ(array<bool>({true, false}).to_vector<std::uint8_t>(),
            (std::vector<std::uint8_t>{1, 0}));
}

TEST(Dtypes, WrapAround) {
  EXPECT_EQ((array<std::uint8_t>({250, 3}) + 10).to_vector<std::uint8_t>(),
            (std::vector<std::uint8_t>{4, 13}));
  EXPECT_EQ((array<std::int16_t>({300}) * array<std::int16_t>({300})).to_vector<std::int16_t>(),
            std::vector<std::int16_t>{static_cast<std::int16_t>(90000)});
  EXPECT_EQ(sum(full({300}, 1, DType::u8)).item<std::int64_t>(), 300 - 256);
  EXPECT_EQ(sum(full({3}, std::int64_t{1} << 40, DType::i64)).item<std::int64_t>(),
            std::int64_t{3} << 40);
}

TEST(Dtypes, ProductsOfDoublesAreSummedAsDoubles) {
  std::vector<double> values(7 * 300);
  std::iota(values.begin(), values.end(), 0.0);
  const Array x = sin(array(values, {7, 300}));
  const std::vector<double> found = matmul(x, transpose(x)).to_vector<double>();
  for (std::size_t i = 0; i < 7; ++i) {
    for (std::size_t j = 0; j < 7; ++j) {
      double wanted = 0;
      for (std::size_t k = 0; k < 300; ++k)
        wanted += std::sin(values[i * 300 + k]) * std::sin(values[j * 300 + k]);
      EXPECT_NEAR(found[i * 7 + j], wanted, 1e-12);
    }
  }
}

TEST(Dtypes, HalvesAreSummedInSinglePrecision) {
  // Adding ones one by one in f16 would stop at 2048.
  EXPECT_EQ(sum(ones({4000}, DType::f16)).item<float>(), 4000.0F);
  EXPECT_EQ(matmul(ones({1, 4000}, DType::f16), ones({4000, 1}, DType::f16)).item<float>(),
            4000.0F);
}

TEST(Dtypes, HaveGradientsOfTheirOwn) {
  const auto loss = [](Array x) { return sum(exp(x) * x); };
  const double x = 0.3;
  const Array gradient = grad(jit(loss))(full({}, x, DType::f64));
  EXPECT_EQ(gradient.dtype(), DType::f64);
  EXPECT_NEAR(gradient.item<double>(), std::exp(x) * (x + 1), 1e-15);
  EXPECT_EQ(grad(loss)(full({2}, 0.5, DType::f16)).dtype(), DType::f16);
}

TEST(Dtypes, BitsOfHalvesWithinAProgram) {
  const Array words = array<std::uint16_t>({15360, 16256, 17, 48000});
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto f = [&](const Array& x) {
      const Array half = bitcast(bitwise_or(shift_right(x, 1), std::uint16_t{1}), dtype) * 2;
      return bitwise_and(bitcast(half + 1, DType::u16), std::uint16_t{0xfff0});
    };
    EXPECT_EQ(jit(f)(words).to_vector<std::uint16_t>(), f(words).to_vector<std::uint16_t>());
  }
}

TEST(Dtypes, AttentionOfDoublesIsThatOfFloats) {
  const std::array<Key, 4> keys = random::split<4>(Key(5));
  const Array q = random::normal(keys[0], {2, 7, 4, 6});
  const Array k = random::normal(keys[1], {2, 9, 2, 6});
  const Array v = random::normal(keys[2], {2, 9, 2, 5});
  const auto masks = {AttentionMask{}, AttentionMask{.is_causal = true},
                      AttentionMask{.before = 2, .after = 1, .scale = 0.3},
                      AttentionMask{.lengths = array<std::int32_t>({0, 4}),
                                    .bias = random::normal(keys[3], {1, 4, 1, 9})}};
  const auto evaluated = [&](AttentionMask mask, DType dtype) {
    if (mask.bias) mask.bias = astype(*mask.bias, dtype);
    const auto loss = [&](const Array& a, const Array& b, const Array& c) {
      const Array y = attention(a, b, c, mask);
      return std::tuple(sum(y * sin(y)), y);
    };
    const auto [value, y, grads] =
        value_and_grad<0, 1, 2>(loss)(astype(q, dtype), astype(k, dtype), astype(v, dtype));
    return std::vector<Array>{y, std::get<0>(grads), std::get<1>(grads), std::get<2>(grads)};
  };
  for (const AttentionMask& mask : masks) {
    const std::vector<Array> found = evaluated(mask, DType::f64);
    const std::vector<Array> wanted = evaluated(mask, DType::f32);
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].dtype(), DType::f64);
      const Array difference = max(abs(found[i] - astype(wanted[i], DType::f64)));
      EXPECT_LT(difference.item<double>(), 3e-6) << i;
    }
  }
}

TEST(Dtypes, AreConvertedOnce) {
  // Between two f16 numbers, but so close to the middle that f32 cannot tell.
  const Array x = array<double>({1.0 + 0x1p-11 + 0x1p-40, 1.0 + 0x1p-11 - 0x1p-40});
  EXPECT_EQ(astype(astype(x, DType::f16), DType::f64).to_vector<double>(),
            (std::vector<double>{1.0 + 0x1p-10, 1.0}));
  const std::int64_t tie = (std::int64_t{1} << 62) + (std::int64_t{1} << 54);  // between two bf16
  EXPECT_EQ(
      astype(array<std::int64_t>({tie + 1, tie}), DType::bf16).to_vector<bfloat16>()[0].bits(),
      0x5E81);
  EXPECT_EQ(astype(array<std::int64_t>({tie}), DType::bf16).to_vector<bfloat16>()[0].bits(),
            0x5E80);
  EXPECT_EQ(
      astype(array<double>({1e300, -1e300, std::nan("")}), DType::i64).to_vector<std::int64_t>(),
      (std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::max(),
                                 std::numeric_limits<std::int64_t>::min(), 0}));
}

}  // namespace
}  // namespace tessera
