// Tests of kernels that convert between f16 or bf16 in memory and f32 in registers, against the
// classes float16 and bfloat16.
#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "compile/host/kernels/elementwise/elementwise.h"
#include "compile/host/kernels/on_every_target.h"

namespace tessera::kernels {
namespace {

template <typename Out, typename In>
std::vector<Out> applied(std::string_view name, DType dtype, const std::vector<In>& x) {
  std::vector<Out> out(x.size());
  const TileKernel* kernel = find_tile_kernel(name, dtype);
  EXPECT_NE(kernel, nullptr) << name;
  const TileInput input{x.data(), false};
  if (kernel != nullptr) kernel->run(&input, out.data(), x.size());
  return out;
}

std::vector<float> sweep() {
  std::vector<float> x = {0.0F,
                          -0.0F,
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::denorm_min(),
                          std::bit_cast<float>(0x7F800001U)};
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 65521 * 7) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  // Ties between bf16 numbers, and the values next to them.
  for (std::uint32_t high = 0x3F80; high < 0x3FA0; ++high) {
    for (std::uint32_t low : {0x7FFFU, 0x8000U, 0x8001U}) {
      x.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  // Ties between f16 numbers of every size, from a tenth of the least one to above the greatest.
  for (double scale = 0x1p-28; scale < 0x1p18; scale *= 2) {
    for (int i = 0; i < 32; ++i) {
      const auto tie = static_cast<float>(scale * (1 + i / 2048.0));
      for (const float value : {std::nextafter(tie, 0.0F), tie, std::nextafter(tie, 1e9F)}) {
        x.push_back(value);
        x.push_back(-value);
      }
    }
  }
  return x;
}

TEST(ElementwiseBf16, RoundsToNearestEven) {
  EXPECT_EQ(bfloat16(std::bit_cast<float>(0x3F808000U)).bits(), 0x3F80);
  EXPECT_EQ(bfloat16(std::bit_cast<float>(0x3F818000U)).bits(), 0x3F82);
  EXPECT_EQ(bfloat16(std::bit_cast<float>(0x3F808001U)).bits(), 0x3F81);
  EXPECT_EQ(bfloat16(std::numeric_limits<float>::max()).bits(), 0x7F80);
  // Just above a tie between bf16 values, by less than f32 can represent.
  EXPECT_EQ(bfloat16(1.0 + 0x1p-8 + 0x1p-40).bits(), 0x3F81);
  EXPECT_EQ(bfloat16(1.0 + 0x1p-8 - 0x1p-40).bits(), 0x3F80);
}

template <typename Half>
void check_conversions() {
  const std::vector<float> x = sweep();
  constexpr DType kType = dtype_of<Half>;
  const std::string type(name(kType));
  testing::on_every_target([&](const char*) {
    const auto narrow = applied<std::uint16_t>("narrow_to_" + type, DType::f32, x);
    const auto rounded = applied<float>("round_to_" + type, DType::f32, x);
    const auto wide = applied<float>("widen", kType, narrow);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Half wanted(x[i]);
      ASSERT_EQ(narrow[i], wanted.bits()) << x[i];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(rounded[i]),
                std::bit_cast<std::uint32_t>(float{wanted}))
          << x[i];
      ASSERT_EQ(std::memcmp(&rounded[i], &wide[i], sizeof(float)), 0) << x[i];
    }
  });
}

TEST(ElementwiseBf16, KernelsConvertAsTheClass) { check_conversions<bfloat16>(); }
TEST(ElementwiseF16, KernelsConvertAsTheClass) { check_conversions<float16>(); }

TEST(ElementwiseF16, RoundsToNearestEven) {
  EXPECT_EQ(float16(1.0F).bits(), 0x3C00);
  EXPECT_EQ(float16(1.0F + 0x1p-11F).bits(), 0x3C00);
  EXPECT_EQ(float16(1.0F + 0x3p-11F).bits(), 0x3C02);
  EXPECT_EQ(float16(65519.0F).bits(), 0x7BFF);
  EXPECT_EQ(float16(65520.0F).bits(), 0x7C00);
  EXPECT_EQ(float16(0x1p-25F).bits(), 0);
  EXPECT_EQ(float16(0x1.8p-25F).bits(), 1);
  // Just above a tie, by less than f32 can represent.
  EXPECT_EQ(float16(1.0 + 0x1p-11 + 0x1p-40).bits(), 0x3C01);
  // Every number is its own nearest one.
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float16 half = float16::from_bits(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(float16(float{half}).bits(), bits);
  }
}

template <class Half, typename T>
void check_integers(std::string_view name, DType dtype) {
  std::vector<T> x;
  for (std::int64_t i = 0; i < (std::int64_t{1} << 32); i += 65519 * 5) {
    x.push_back(static_cast<T>(static_cast<std::uint32_t>(i)));
  }
  // Close to ties between two halves, or to the end of f16.
  for (std::uint32_t tie : {0x01010000U, 0x01810000U, 0x41400000U, 0x40C00000U, 0x80800000U, 2049U,
                            2051U, 32760U, 65504U, 65520U}) {
    for (std::uint32_t d : {0U, 1U, 511U, 512U, 0xFFFFFFFFU, 0xFFFFFE00U}) {
      x.push_back(static_cast<T>(tie + d));
      x.push_back(static_cast<T>(0U - tie + d));
    }
  }
  testing::on_every_target([&](const char*) {
    const auto unrounded = applied<float>(name, dtype, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(Half(unrounded[i]).bits(), Half(static_cast<double>(x[i])).bits()) << x[i];
    }
  });
}

TEST(ElementwiseHalf, IntegersAreRoundedOnce) {
  check_integers<bfloat16, std::int32_t>("convert_i32_bf16", DType::i32);
  check_integers<bfloat16, std::uint32_t>("convert_u32_bf16", DType::u32);
  check_integers<float16, std::int32_t>("convert_i32_f16", DType::i32);
  check_integers<float16, std::uint32_t>("convert_u32_f16", DType::u32);
}

}  // namespace
}  // namespace tessera::kernels
