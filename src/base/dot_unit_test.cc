// Tests the definitions of the dot units with sums that tell the units apart.
#include "base/dot_unit.h"

#include <bit>
#include <cstdint>
#include <gtest/gtest.h>
#include <utility>
#include <vector>

namespace tessera {
namespace {

float sum_of(DotUnit unit, const std::vector<float>& terms) {
  DotSum sum(unit);
  for (const float x : terms) sum.add(x, 1.0F);
  return sum.value();
}

TEST(DotSum, AmxAddsEvenAndOddTermsOfBlocks) {
  const std::vector<float> terms = {0x1p24F, 1.0F, -0x1p24F, 1.0F};
  EXPECT_EQ(sum_of(DotUnit::portable, terms), 1.0F);
  EXPECT_EQ(sum_of(DotUnit::amx_bf16, terms), 2.0F);
  // In the first block the even terms cancel. The term with number 32 is in the second block.
  std::vector<float> two(33);
  two[0] = 0x1p24F;
  two[1] = 1.0F;
  two[30] = -0x1p24F;
  EXPECT_EQ(sum_of(DotUnit::amx_bf16, two), 1.0F);
  std::swap(two[30], two[32]);
  EXPECT_EQ(sum_of(DotUnit::amx_bf16, two), 0.0F);
  // Subnormal products, half-block sums and sums of blocks become zeros.
  DotSum tiny(DotUnit::amx_bf16);
  tiny.add(-0x1p-70F, 0x1p-70F);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(tiny.value()), 0U);
  const std::vector<float> apart = {0x1.8p-126F, -0x1p-126F};
  EXPECT_EQ(sum_of(DotUnit::avx512_bf16, apart), 0.0F);
  EXPECT_EQ(sum_of(DotUnit::amx_bf16, apart), 0.0F);
  EXPECT_EQ(sum_of(DotUnit::portable, apart), 0x1p-127F);
}

}  // namespace
}  // namespace tessera
