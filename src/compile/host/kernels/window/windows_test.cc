#include "compile/host/kernels/window/windows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

#include "compile/host/kernels/on_every_target.h"
#include "compile/host/kernels/pairwise.h"

namespace tessera::kernels {
namespace {

/// Few different numbers, so that there are ties; zeros of both signs, infinities and NaN.
std::vector<float> numbers(std::mt19937& engine, std::int64_t count) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> all = {0.0f, -0.0f, 1.0f, -1.5f, 2.25f, 1e-40f,
                                  kInf, -kInf, 0.1f, 3e38f, -7.0f, std::nanf("")};
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    // NaN is rare: it hides everything else in its window.
    const std::size_t most = engine() % 16 == 0 ? all.size() : all.size() - 1;
    values.push_back(all[engine() % most]);
  }
  return values;
}

std::uint32_t bits(float x) {
  return std::isnan(x) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(x);
}

float combined(ReduceKind kind, float a, float b) {
  return kind == ReduceKind::sum ? a + b : better(kind, a, b);
}

TEST(Windows, AreReducedElementByElementInOrder) {
  std::mt19937 engine(3);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  };
  for (int i = 0; i < 100; ++i) {
    std::vector<std::int64_t> offsets;
    for (std::int64_t n = between(1, 9); n > 0; --n) offsets.push_back(between(0, 200));
    const WindowRows rows = {.offsets = offsets,
                             .rows = between(1, 5),
                             .stride = between(0, 90),
                             .columns = between(1, 150)};
    // Exactly as long as needed, so that a sanitizer detects reads beyond the end.
    const std::int64_t last = *std::max_element(offsets.begin(), offsets.end());
    const std::vector<float> from =
        numbers(engine, (rows.rows - 1) * rows.stride + rows.columns + last);
    for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::max, ReduceKind::min}) {
      testing::on_every_target([&](const char*) {
        std::vector<float> to(static_cast<std::size_t>(rows.rows * rows.columns));
        reduce_windows(kind, rows, from.data(), to.data());
        for (std::int64_t at = 0; at < rows.rows * rows.columns; ++at) {
          const std::int64_t place = at / rows.columns * rows.stride + at % rows.columns;
          const auto element = [&](std::int64_t offset) {
            return from[static_cast<std::size_t>(place + offset)];
          };
          float value = element(offsets[0]);
          for (std::size_t k = 1; k < offsets.size(); ++k)
            value = combined(kind, value, element(offsets[k]));
          ASSERT_EQ(bits(to[static_cast<std::size_t>(at)]), bits(value)) << at;
        }
      });
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
