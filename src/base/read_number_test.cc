// Compares numbers read with strtod with those read by std::from_chars.
#include "base/read_number.h"

#include <bit>
#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <string>

namespace tessera {
namespace {

void expect_same(const std::string& text) {
  SCOPED_TRACE("'" + text + "'");
  double wanted = 7, found = 7;
  const char* const end = text.data() + text.size();
  const std::from_chars_result left = read_number(text.data(), end, wanted);
  const std::from_chars_result right = detail::read_with_strtod(text.data(), end, found);
  EXPECT_EQ(left.ec, right.ec);
  EXPECT_EQ(left.ptr - text.data(), right.ptr - text.data());
  EXPECT_EQ(std::bit_cast<std::uint64_t>(wanted), std::bit_cast<std::uint64_t>(found));
}

TEST(ReadNumber, ReadsWhatFromCharsReads) {
  for (const char* text : {"",
                           "1",
                           "-1.5,2",
                           "+1",
                           " 1",
                           "0x10",
                           "1e5}",
                           "1e",
                           "1e+",
                           ".5",
                           "5.",
                           ".",
                           "-",
                           "--1",
                           "inf",
                           "-infinity",
                           "nan",
                           "infx",
                           "1e400",
                           "-1e400",
                           "1e-400",
                           "4.9e-324",
                           "2.2250738585072011e-308",
                           "1.7976931348623157e308",
                           "0.1",
                           "-0",
                           "00012",
                           "1.2.3",
                           "1_000",
                           "\t1",
                           "e5",
                           "1\n2"})
    expect_same(text);
}

TEST(ReadNumber, ReadsRandomTextsAsFromCharsDoes) {
  constexpr std::uint32_t kSeed = 20;
  std::mt19937 random(kSeed);
  constexpr std::string_view kLetters = "0123456789.eE+-x, ";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (const auto length = random() % 12; text.size() < length;)
      text += kLetters[random() % kLetters.size()];
    expect_same(text);
  }
}

TEST(ReadNumber, ReadsWhatWasPrinted) {
  std::mt19937_64 random(21);
  for (int i = 0; i < 20000; ++i) {
    char text[32];
    const auto number = std::bit_cast<double>(random() & ~(1ULL << 62));  // finite
    *std::to_chars(text, text + sizeof(text) - 1, number).ptr = '\0';
    expect_same(text);
  }
}

}  // namespace
}  // namespace tessera
