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

/// Random rows with gaps between their results, and elements that the operand lacks.
struct Numbered {
  explicit Numbered(std::mt19937& engine) {
    const auto between = [&](std::int64_t low, std::int64_t high) {
      return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
    };
    std::int32_t number = 0;
    for (std::int64_t n = between(0, 6); n > 0; --n) {
      number += static_cast<std::int32_t>(between(0, 2));
      offsets.push_back(between(0, 200));
      numbers.push_back(number++);
    }
    rows = {.offsets = offsets,
            .rows = between(1, 5),
            .stride = between(0, 90),
            .columns = between(1, 150),
            .missing = static_cast<std::int32_t>(between(-1, 7)),
            .numbers = numbers};
    while (std::find(numbers.begin(), numbers.end(), rows.missing) != numbers.end()) ++rows.missing;
    rows.result_stride = rows.columns + between(0, 20);
    const std::int64_t last =
        offsets.empty() ? 0 : *std::max_element(offsets.begin(), offsets.end());
    from_size = (rows.rows - 1) * rows.stride + rows.columns + last;
    to_size = (rows.rows - 1) * rows.result_stride + rows.columns;
  }
  /// Calls `visit(place in the operand, place in the result)` for all results.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      for (std::int64_t i = 0; i < rows.columns; ++i)
        visit(row * rows.stride + i, static_cast<std::size_t>(row * rows.result_stride + i));
    }
  }

  std::vector<std::int64_t> offsets;
  std::vector<std::int32_t> numbers;
  WindowRows rows;
  std::int64_t from_size = 0, to_size = 0;
};

constexpr float kUntouched = 12345.0f;

TEST(Windows, LackElementsAndLeaveGaps) {
  std::mt19937 engine(5);
  for (int i = 0; i < 100; ++i) {
    const Numbered n(engine);
    if (n.offsets.empty()) continue;
    const std::vector<float> from = numbers(engine, n.from_size);
    testing::on_every_target([&](const char*) {
      std::vector<float> to(static_cast<std::size_t>(n.to_size), kUntouched), expected = to;
      reduce_windows(ReduceKind::sum, n.rows, from.data(), to.data());
      n.for_each([&](std::int64_t place, std::size_t result) {
        float sum = from[static_cast<std::size_t>(place + n.offsets[0])];
        for (std::size_t k = 1; k < n.offsets.size(); ++k)
          sum += from[static_cast<std::size_t>(place + n.offsets[k])];
        expected[result] = n.rows.missing < 0 ? sum : sum + 0.0f;
      });
      for (std::size_t at = 0; at < to.size(); ++at) ASSERT_EQ(bits(to[at]), bits(expected[at]));
    });
  }
}

TEST(Windows, AreSearchedInTheOrderOfTheNumbers) {
  std::mt19937 engine(7);
  constexpr float kFill = -std::numeric_limits<float>::infinity();
  for (int i = 0; i < 200; ++i) {
    const Numbered n(engine);
    const std::vector<float> from = numbers(engine, n.from_size);
    const std::vector<float> wanted = numbers(engine, n.to_size);
    testing::on_every_target([&](const char*) {
      std::vector<std::int32_t> to(static_cast<std::size_t>(n.to_size), 99), expected = to;
      find_in_windows(n.rows, kFill, from.data(), wanted.data(), to.data());
      n.for_each([&](std::int64_t place, std::size_t result) {
        std::int32_t& found = expected[result];
        found = -1;
        const auto look = [&](float element, std::int32_t number) {
          if (element == wanted[result] && (found < 0 || number < found)) found = number;
        };
        for (std::size_t k = 0; k < n.offsets.size(); ++k)
          look(from[static_cast<std::size_t>(place + n.offsets[k])], n.numbers[k]);
        if (n.rows.missing >= 0) look(kFill, n.rows.missing);
      });
      ASSERT_EQ(to, expected);
    });
  }
}

TEST(Windows, GiveTheirValuesToTheElementsThatTheyTook) {
  std::mt19937 engine(9);
  for (int i = 0; i < 200; ++i) {
    const Numbered n(engine);
    const std::vector<float> values = numbers(engine, n.from_size);
    std::vector<std::int32_t> taken;
    for (std::size_t k = 0; k < values.size(); ++k) {
      // Mostly numbers that some result has.
      taken.push_back(
          n.numbers.empty() || engine() % 4 == 0 ? -1 : n.numbers[engine() % n.numbers.size()]);
    }
    testing::on_every_target([&](const char*) {
      std::vector<float> to(static_cast<std::size_t>(n.to_size), kUntouched), expected = to;
      if (n.offsets.empty() && n.rows.missing < 0) return;
      sum_taken(n.rows, taken.data(), values.data(), to.data());
      n.for_each([&](std::int64_t place, std::size_t result) {
        std::vector<float> parts;
        for (std::size_t k = 0; k < n.offsets.size(); ++k) {
          const auto at = static_cast<std::size_t>(place + n.offsets[k]);
          parts.push_back(taken[at] == n.numbers[k] ? values[at] : 0.0f);
        }
        if (n.rows.missing >= 0) parts.push_back(0.0f);
        float sum = parts[0];
        for (std::size_t k = 1; k < parts.size(); ++k) sum += parts[k];
        expected[result] = sum;
      });
      for (std::size_t at = 0; at < to.size(); ++at) ASSERT_EQ(bits(to[at]), bits(expected[at]));
    });
  }
}

}  // namespace
}  // namespace tessera::kernels
