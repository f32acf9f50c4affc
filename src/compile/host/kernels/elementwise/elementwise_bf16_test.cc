// Tests of kernels that convert between bf16 in memory and f32 in registers, against class
// bfloat16.
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
  // Ties, and the values next to them.
  for (std::uint32_t high = 0x3F80; high < 0x3FA0; ++high) {
    for (std::uint32_t low : {0x7FFFU, 0x8000U, 0x8001U}) {
      x.push_back(std::bit_cast<float>(high << 16 | low));
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
  const std::vector<float> x = sweep();
  testing::on_every_target([&](const char*) {
    const auto narrow = applied<std::uint16_t>("narrow", DType::f32, x);
    const auto rounded = applied<float>("round_to_bf16", DType::f32, x);
    const auto wide = applied<float>("widen", DType::bf16, narrow);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bfloat16 wanted(x[i]);
      ASSERT_EQ(narrow[i], wanted.bits()) << x[i];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(rounded[i]), std::uint32_t{wanted.bits()} << 16)
          << x[i];
      ASSERT_EQ(std::memcmp(&rounded[i], &wide[i], sizeof(float)), 0) << x[i];
    }
  });
}

template <typename T>
void check_integers(std::string_view name, DType dtype) {
  std::vector<T> x;
  for (std::int64_t i = 0; i < (std::int64_t{1} << 32); i += 65519 * 5) {
    x.push_back(static_cast<T>(static_cast<std::uint32_t>(i)));
  }
  // Close to ties between two bf16 values.
  for (std::uint32_t tie : {0x01010000U, 0x01810000U, 0x41400000U, 0x40C00000U, 0x80800000U}) {
    for (std::uint32_t d : {0U, 1U, 511U, 512U, 0xFFFFFFFFU, 0xFFFFFE00U}) {
      x.push_back(static_cast<T>(tie + d));
      x.push_back(static_cast<T>(0U - tie + d));
    }
  }
  testing::on_every_target([&](const char*) {
    const auto unrounded = applied<float>(name, dtype, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(bfloat16(unrounded[i]).bits(), bfloat16(static_cast<double>(x[i])).bits()) << x[i];
    }
  });
}

TEST(ElementwiseBf16, IntegersAreRoundedOnce) {
  check_integers<std::int32_t>("convert_i32_bf16", DType::i32);
  check_integers<std::uint32_t>("convert_u32_bf16", DType::u32);
}

}  // namespace
}  // namespace tessera::kernels
