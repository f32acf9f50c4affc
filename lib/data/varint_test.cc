#include "data/varint.h"

#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace tessera::data {
namespace {

using Bytes = std::vector<std::uint8_t>;

std::optional<std::uint64_t> varint_of(const Bytes& bytes) {
  std::size_t at = 0;
  const auto number = read_varint([&] { return bytes.at(at++); });
  if (number) {
    EXPECT_EQ(at, bytes.size());
  }
  return number;
}

Bytes varint_bytes(std::uint64_t number) {
  Bytes bytes;
  for (; number >= 0x80; number >>= 7U) bytes.push_back(static_cast<std::uint8_t>(number | 0x80U));
  bytes.push_back(static_cast<std::uint8_t>(number));
  return bytes;
}

TEST(Varint, ReadsGroupsOfSevenBits) {
  EXPECT_EQ(varint_of({0}), 0U);
  EXPECT_EQ(varint_of({0x7F}), 127U);
  EXPECT_EQ(varint_of({0xAC, 0x02}), 300U);
  EXPECT_EQ(varint_of({0x80, 0x00}), 0U);
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t number = random() >> (i % 64);
    EXPECT_EQ(varint_of(varint_bytes(number)), number);
  }
}

TEST(Varint, HasAtMost64Bits) {
  Bytes bytes(9, 0xFF);
  bytes.push_back(1);
  EXPECT_EQ(varint_of(bytes), ~std::uint64_t{0});
  bytes.back() = 2;  // bit 64
  EXPECT_EQ(varint_of(bytes), std::nullopt);
  bytes.back() = 0x81;
  bytes.push_back(0);  // an eleventh byte
  EXPECT_EQ(varint_of(bytes), std::nullopt);
}

TEST(Varint, PassesOnThatThereAreNoMoreBytes) {
  EXPECT_THROW(varint_of({}), std::out_of_range);
  EXPECT_THROW(varint_of({0x80, 0x80}), std::out_of_range);
}

}  // namespace
}  // namespace tessera::data
