// Compares random numbers and image operations with NumPy, Pillow and torchvision.
#include <cmath>
#include <gtest/gtest.h>

#include <tessera/data.h>

#include "data/crop.h"
#include "tests/peers/golden.h"

namespace tessera::data {
namespace {

using nlohmann::json;
using Bytes = std::vector<std::uint8_t>;

constexpr std::array<double, 3> kMeans = {0.4914, 0.4822, 0.4465};
constexpr std::array<double, 3> kDeviations = {0.2023, 0.1994, 0.2010};

/// The image that make_data_golden.py generates for this seed.
HostArray pattern(std::uint64_t seed, std::int64_t height, std::int64_t width) {
  Bytes bytes(static_cast<std::size_t>(height * width * 3));
  for (std::uint64_t n = 0; n < bytes.size(); ++n) {
    bytes[n] = static_cast<std::uint8_t>((n * n * 37 + n * (seed + 11) + seed) / 7 % 256);
  }
  return {.shape = {height, width, 3}, .values = bytes};
}

std::string hex(const HostArray& image) {
  static constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : std::get<Bytes>(image.values)) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

TEST(RecordRandom, DrawsWhatNumpyDraws) {
  for (const json& item : data_golden().at("draws")) {
    RecordRandom random(item.at("key").get<std::uint64_t>());
    for (const json& want : item.at("u32")) EXPECT_EQ(random.next_u32(), want);
    for (const json& want : item.at("doubles")) EXPECT_EQ(random.random(), want.get<double>());
    for (const json& draw : item.at("integers")) {
      EXPECT_EQ(random.integer(draw[0].get<std::int64_t>(), draw[1].get<std::int64_t>()), draw[2])
          << draw;
    }
  }
  RecordRandom random(12);
  const json grain = read_golden("grain_index_sampler.json");
  for (const json& want : grain.at("philox_rng_index0_seed12_random_uint32x4")) {
    EXPECT_EQ(random.next_u32(), want);
  }
}

TEST(Crop, BoxesAreThoseOfTorchvisionsRules) {
  int count = 0;
  for (const json& item : data_golden().at("boxes")) {
    const CropOptions options{.scale = item.at("scale").get<std::array<double, 2>>(),
                              .ratio = item.at("ratio").get<std::array<double, 2>>()};
    std::uint64_t key = 0;
    for (const json& want : item.at("boxes")) {
      RecordRandom random(key++);
      const Box box = random_box(item.at("height").get<std::int64_t>(),
                                 item.at("width").get<std::int64_t>(), random, options);
      EXPECT_EQ((std::vector{box.top, box.left, box.height, box.width}),
                want.get<std::vector<std::int64_t>>())
          << item.at("height") << " " << item.at("width") << " key " << key - 1;
      ++count;
    }
  }
  EXPECT_EQ(count, 720);
}

TEST(Crop, AreasAndRatiosAreSpreadEvenly) {
  const CropOptions options{.scale = {0.1, 0.4}, .ratio = {0.5, 2.0}};
  double area = 0;
  double log_ratio = 0;
  double left = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    RecordRandom random(static_cast<std::uint64_t>(i));
    const Box box = random_box(1000, 1000, random, options);
    ASSERT_GE(box.top, 0);
    ASSERT_LE(box.top + box.height, 1000);
    ASSERT_LE(box.left + box.width, 1000);
    area += static_cast<double>(box.height * box.width) / 1e6;
    log_ratio += std::log(static_cast<double>(box.width) / static_cast<double>(box.height));
    if (box.width < 1000)
      left += static_cast<double>(box.left) / static_cast<double>(1000 - box.width);
  }
  // The expected means of uniform draws. The tolerances are 5 standard errors for 20000 draws.
  EXPECT_NEAR(area / kDraws, 0.25, 0.0031);
  EXPECT_NEAR(log_ratio / kDraws, 0.0, 0.015);
  EXPECT_NEAR(left / kDraws, 0.5, 0.0105);
}

TEST(Resized, HasTheBytesOfPillow) {
  for (const json& item : data_golden().at("resizes")) {
    const auto from = item.at("from").get<std::vector<std::int64_t>>();
    const auto to = item.at("to").get<std::vector<std::int64_t>>();
    const HostArray image = pattern(item.at("seed").get<std::uint64_t>(), from[0], from[1]);
    const HostArray out = resized(image, to[0], to[1]);
    EXPECT_EQ(out.shape, (Shape{to[0], to[1], 3}));
    EXPECT_EQ(hex(out), item.at("bytes").get<std::string>())
        << item.at("from") << " to " << item.at("to");
  }
}

TEST(Augmented, IsTheTrainingDataOfTheVisionTransformer) {
  for (const json& item : data_golden().at("augmented")) {
    const auto key = item.at("key").get<std::uint64_t>();
    RecordRandom random(key);
    const HostArray flipped = random_horizontal_flip(pattern(key, 32, 32), random);
    const HostArray crop =
        random_resized_crop(flipped, random, {.scale = {0.9, 1.0}, .ratio = {0.9, 1.1}});
    EXPECT_EQ(hex(crop), item.at("bytes").get<std::string>()) << "key " << key;
    const HostArray x = normalised(crop, kMeans, kDeviations);
    const auto want = item.at("normalised").get<std::vector<float>>();
    const auto& values = std::get<std::vector<float>>(x.values);
    EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 48), want);
  }
}

TEST(Flip, HappensWithItsProbability) {
  const HostArray image{.shape = {1, 3, 1}, .values = Bytes{1, 2, 3}};
  int flips = 0;
  for (std::uint64_t key = 0; key < 10000; ++key) {
    RecordRandom random(key);
    const auto out = std::get<Bytes>(random_horizontal_flip(image, random, 0.3).values);
    ASSERT_TRUE(out == (Bytes{1, 2, 3}) || out == (Bytes{3, 2, 1}));
    flips += out[0] == 3 ? 1 : 0;
  }
  EXPECT_NEAR(flips, 3000, 230);  // 5 standard deviations
}

}  // namespace
}  // namespace tessera::data
