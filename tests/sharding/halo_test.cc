// Windows, slices and similar ops along a dimension that is split. The split stays, the bits are
// those of one device, and only rows around the shards move, not the array.
#include <functional>
#include <gtest/gtest.h>
#include <map>

#include <tessera/grad.h>
#include <tessera/tessera.h>

#include "api/test_support.h"

namespace tessera {
namespace {

using Arrays = std::vector<Array>;

constexpr std::int64_t kFloat = 4;  // bytes

/// Bytes that a device receives in one run of the program, by kind of collective, as planned. Also
/// expects the executed collectives to be the planned ones, and the bits of one device.
std::map<std::string, std::int64_t> received(const Mesh& mesh, const Arrays& inputs,
                                             const std::vector<P>& specs,
                                             const std::function<Arrays(Arrays)>& f) {
  const use_mesh scope(mesh);
  Arrays split;
  for (std::size_t i = 0; i < inputs.size(); ++i) split.push_back(device_put(inputs[i], specs[i]));
  auto program = jit([&](Arrays values) { return f(std::move(values)); });
  std::map<std::string, std::int64_t> bytes;
  for (const PlannedCollective& row : program.lower(split).planned_collectives()) {
    bytes[row.kind] += row.wire_bytes * row.count;
  }
  program(split);
  reset_collective_counts();
  const Arrays found = program(split);
  if (engine() == "host") {
    EXPECT_EQ(collective_counts(), program.compiled().collectives());
  }
  Arrays wanted;
  {
    const use_mesh alone{Mesh()};
    wanted = jit([&](Arrays values) { return f(std::move(values)); })(inputs);
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) testing::expect_same_bits(found[i], wanted[i]);
  return bytes;
}

using Bytes = std::map<std::string, std::int64_t>;

Array images(Shape shape) { return testing::numbers(shape, 1); }

Mesh line() { return make_mesh({{"x", 4}}); }

TEST(Halo, AConvolutionReceivesTheRowsThatItsWindowsReach) {
  const auto f = [](Arrays in) { return Arrays{conv(in[0], in[1])}; };
  const Array kernel = testing::numbers({3, 3, 4, 8}, 2);
  // The result has 14 rows, in shards that start at 0, 3, 7 and 10. Shard 1 reads rows [3, 9) of
  // the input and owns [4, 8); shard 3 reads [10, 16) and owns [12, 16). No shard reads more.
  EXPECT_EQ(received(line(), {images({2, 16, 8, 4}), kernel}, {P{none, "x"}, P{}}, f),
            (Bytes{{"halo_exchange", 2 * 2 * 8 * 4 * kFloat}}));
}

/// The windows of the padded array are derived from windows of the array, so rows move once.
TEST(Halo, PaddingAndTheConvolutionAfterItReceiveOneRowFromEachNeighbour) {
  const auto f = [](Arrays in) { return Arrays{conv(in[0], in[1], {.padding = "SAME"})}; };
  const Array kernel = testing::numbers({3, 3, 4, 8}, 2);
  EXPECT_EQ(received(line(), {images({2, 16, 8, 4}), kernel}, {P{none, "x"}, P{}}, f),
            (Bytes{{"halo_exchange", 2 * 2 * 8 * 4 * kFloat}}));
  // If both dimensions are split, a corner moves as well: shards are 8 by 2, and the inner ones
  // read 9 by 4.
  const Mesh mesh = make_mesh({{"x", 2}, {"y", 4}});
  EXPECT_EQ(received(mesh, {images({2, 16, 8, 4}), kernel}, {P{none, "x", "y"}, P{}}, f),
            (Bytes{{"halo_exchange", 2 * (9 * 4 - 8 * 2) * 4 * kFloat}}));
}

TEST(Halo, PaddingOfAllSizesBeforeWindowsOfAllKinds) {
  const Array kernel = testing::numbers({3, 2, 2, 3}, 2);
  for (const std::int64_t low : {0, 1, 3, 9}) {
    for (const std::int64_t high : {0, 2, 7}) {
      for (const std::int64_t step : {1, 2, 3}) {
        const auto f = [&](Arrays in) {
          const Array padded = pad(in[0], {0, low, 1, 0}, {0, high, 0, 0}, 0.5);
          return Arrays{conv(padded, in[1], {.strides = {step, 1}}),
                        conv(padded, in[1], {.kernel_dilation = {step, 1}}),
                        reduce_window_max(padded, {1, 3, 2, 1}, {1, step, 1, 1})};
        };
        for (const Mesh& mesh : {line(), make_mesh({{"x", 3}})}) {
          const Bytes bytes =
              received(mesh, {images({1, 17, 6, 2}), kernel}, {P{none, "x"}, P{}}, f);
          for (const auto& [kind, count] : bytes) EXPECT_EQ(kind, "halo_exchange") << count;
        }
      }
    }
  }
}

TEST(Halo, AWindowLargerThanAShardReachesSeveralNeighbours) {
  const auto f = [](Arrays in) { return Arrays{reduce_window_sum(in[0], {8, 2})}; };
  // The last shard of the result has 2 of 5 rows, computed from rows [3, 12). It owns 3 of these.
  EXPECT_EQ(received(line(), {images({12, 9})}, {P{"x"}}, f),
            (Bytes{{"halo_exchange", 6 * 9 * kFloat}}));
}

TEST(Halo, StridesAndDilationsOfUnevenShardsOnTwoAxes) {
  const auto f = [](Arrays in) {
    return Arrays{conv(in[0], in[1], {.strides = {2, 1}, .kernel_dilation = {1, 3}})};
  };
  const Mesh mesh = make_mesh({{"x", 3}, {"y", 2}});
  const Bytes bytes = received(mesh, {images({1, 23, 17, 2}), testing::numbers({3, 2, 2, 3}, 2)},
                               {P{none, "x", "y"}, P{}}, f);
  ASSERT_EQ(bytes.size(), 1U);
  // A halo of two rows and three columns around a shard of 8 by 9.
  EXPECT_LE(bytes.at("halo_exchange"), (10 * 12 - 8 * 8) * 2 * kFloat);
}

TEST(Halo, ShardsThatDoNotOverlapNeedNothing) {
  const auto f = [](Arrays in) {
    return Arrays{max_pool(in[0], {2, 2}, {2, 2}), avg_pool(in[0], {2, 1}, {2, 1})};
  };
  EXPECT_EQ(received(line(), {images({2, 16, 8, 4})}, {P{none, "x"}}, f), Bytes());
}

TEST(Halo, GradientsOfPoolingOfWholeShardsNeedNothing) {
  const auto f = [](Arrays in) {
    return Arrays{grad([](const Array& x) {
                    return sum(square(max_pool(x, {2, 2}, {2, 2})));
                  })(in[0]),
                  grad([](const Array& x) {
                    return sum(square(avg_pool(x, {2, 2}, {2, 2})));
                  })(in[0])};
  };
  const Bytes bytes = received(line(), {images({2, 16, 8, 4})}, {P{none, "x"}}, f);
  ASSERT_LE(bytes.size(), 1U);
  for (const auto& [kind, count] : bytes) EXPECT_EQ(kind, "halo_exchange") << count;
  // The gradient of avg_pool is a windowed sum, whose windows start one row earlier.
  if (!bytes.empty()) {
    EXPECT_LE(bytes.at("halo_exchange"), 2 * 3 * 9 * 4 * kFloat);
  }
}

TEST(Halo, GradientsOfUnevenStridedWindowsMoveRowsOnly) {
  const auto f = [](Arrays in) {
    const auto loss = [&](const Array& x) {
      const Array y = conv(x, in[1], {.strides = {2, 2}, .padding = "SAME"});
      return sum(square(max_pool(y, {3, 2}, {2, 2})));
    };
    return Arrays{grad(loss)(in[0])};
  };
  // Dimensions of 29, 15 and 7 rows are split over 4 devices.
  const Bytes bytes = received(line(), {images({2, 29, 8, 4}), testing::numbers({3, 3, 4, 4}, 2)},
                               {P{none, "x"}, P{}}, f);
  ASSERT_EQ(bytes.size(), 1U);
  // For comparison: the image has 2 * 29 * 8 * 4 elements, and later values have fewer.
  EXPECT_LE(bytes.at("halo_exchange"), 12 * 2 * 10 * 4 * kFloat);
}

TEST(Halo, TheGradientForTheImageIsAConvolutionWithAHalo) {
  const auto f = [](Arrays in) {
    return Arrays{grad([&](const Array& x) { return sum(square(conv(x, in[1]))); })(in[0])};
  };
  const Bytes bytes = received(line(), {images({2, 16, 8, 4}), testing::numbers({3, 3, 4, 4}, 2)},
                               {P{none, "x"}, P{}}, f);
  ASSERT_EQ(bytes.size(), 1U);
  // 2 rows for the forward pass, and around the cotangent 2 for padding and 4 for windows. With its
  // halo, a row has at most 12 columns.
  EXPECT_LE(bytes.at("halo_exchange"), 2 * 8 * 12 * 4 * kFloat);
}

TEST(Halo, TheGradientForTheKernelIsAPartialSumWhereRowsAreTheOutermostTerms) {
  const auto f = [](Arrays in) {
    return Arrays{grad([&](const Array& w) { return sum(square(conv(in[0], w))); })(in[1])};
  };
  const Bytes bytes = received(line(), {images({1, 18, 8, 4}), testing::numbers({3, 3, 4, 5}, 2)},
                               {P{none, "x"}, P{}}, f);
  ASSERT_EQ(bytes.size(), 2U);
  EXPECT_EQ(bytes.at("all_reduce"), 3 * 3 * 4 * 5 * kFloat * 3 / 4 * 2);
  // Two rows for each of the two convolutions.
  EXPECT_EQ(bytes.at("halo_exchange"), 2 * 2 * 8 * 4 * kFloat);
}

TEST(Halo, TheGradientForTheKernelOfSeveralImagesMovesNoWholeArray) {
  const auto f = [](Arrays in) {
    return Arrays{grad([&](const Array& w) { return sum(square(conv(in[0], w))); })(in[1])};
  };
  const Bytes bytes = received(line(), {images({8, 18, 8, 4}), testing::numbers({3, 3, 4, 5}, 2)},
                               {P{none, "x"}, P{}}, f);
  // The outermost terms of the sum are the images, so the sum may be split over them only.
  EXPECT_FALSE(bytes.contains("all_gather"));
  EXPECT_TRUE(bytes.contains("all_to_all"));
}

TEST(Halo, SlicesReceiveWhatTheyAreMadeOf) {
  const Array x = images({16, 6});
  const auto of = [&](const std::function<Array(Array)>& f) {
    return received(line(), {x}, {P{"x"}}, [&](Arrays in) { return Arrays{f(in[0])}; });
  };
  // The result, rows 1 to 12, has shards of 3 rows that start at 1, 4, 7 and 10.
  EXPECT_EQ(of([](Array a) { return slice(a, 0, 1, 13); }),
            (Bytes{{"halo_exchange", 2 * 6 * kFloat}}));
  // Every second row is already on the device that needs it.
  EXPECT_EQ(of([](Array a) { return slice(a, 0, 0, 16, 2); }), Bytes());
  // One row is sent to every device.
  EXPECT_EQ(of([](Array a) { return slice(a, 0, 9, 10); }), (Bytes{{"halo_exchange", 6 * kFloat}}));
  EXPECT_EQ(of([](Array a) { return reverse(a, {0}); }),
            (Bytes{{"halo_exchange", 4 * 6 * kFloat}}));
}

TEST(Halo, PartsOfAConcatenationStaySplit) {
  const auto f = [](Arrays in) { return Arrays{concatenate(in, 0)}; };
  // 20 rows in shards of 5: device 1 needs rows [5, 10) and owns rows 2, 3 and 11 to 13 of the
  // result.
  const Bytes bytes = received(line(), {images({8, 3}), images({12, 3})}, {P{"x"}, P{"x"}}, f);
  ASSERT_EQ(bytes.size(), 1U);
  EXPECT_LE(bytes.at("halo_exchange"), (5 + 5) * 3 * kFloat);
}

}  // namespace
}  // namespace tessera
