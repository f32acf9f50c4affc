// CIFAR-10, prepared for the vision transformer.
#pragma once

#include <array>

#include <tessera/data.h>

namespace vit {

using namespace tessera;

// Means and standard deviations of the channels of CIFAR-10, for elements scaled to [0, 1].
inline constexpr std::array kMeans = {0.4914, 0.4822, 0.4465};
inline constexpr std::array kDeviations = {0.2023, 0.1994, 0.2010};
inline constexpr std::int64_t kDataSeed = 12;

/// Converts images to f32 with a mean of about 0 and a standard deviation of about 1.
inline data::Record normalise(data::Record x) {
  x[0] = data::normalised(x[0], kMeans, kDeviations);
  return x;
}

/// A random part of the image that is slightly smaller, resized to the original size.
inline data::Record crop(data::Record x, data::RecordRandom& random) {
  x[0] = data::random_resized_crop(x[0], random, {.scale = {0.9, 1.0}, .ratio = {0.9, 1.1}});
  return x;
}

inline data::Record flip(data::Record x, data::RecordRandom& random) {
  x[0] = data::random_horizontal_flip(std::move(x[0]), random);
  return x;
}

/// Training images, shuffled and augmented differently in each epoch. Images that change their
/// meaning when mirrored, such as digits, must not be flipped.
inline data::Dataset training_data(const std::string& folder, bool is_flipped = true,
                                   std::source_location where = std::source_location::current()) {
  data::Dataset images =
      data::cifar10(folder, data::Split::train, where) | data::shuffle(kDataSeed) | data::repeat();
  if (is_flipped) images = images | data::map(flip);
  return images | data::map(crop);
}

}  // namespace vit
