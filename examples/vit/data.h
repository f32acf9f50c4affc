// CIFAR-10 as the vision transformer trains on it.
#pragma once

#include <array>

#include <tessera/data.h>

namespace vit {

using namespace tessera;

// Of the channels of CIFAR-10, as parts of 255.
inline constexpr std::array kMeans = {0.4914, 0.4822, 0.4465};
inline constexpr std::array kDeviations = {0.2023, 0.1994, 0.2010};
inline constexpr std::int64_t kDataSeed = 12;

/// Images become f32 with means of about 0 and deviations of about 1.
inline data::Record normalise(data::Record x) {
  x[0] = data::normalised(x[0], kMeans, kDeviations);
  return x;
}

/// A part of the image, not much smaller, in the size of the whole.
inline data::Record crop(data::Record x, data::RecordRandom& random) {
  x[0] = data::random_resized_crop(x[0], random, {.scale = {0.9, 1.0}, .ratio = {0.9, 1.1}});
  return x;
}

inline data::Record flip(data::Record x, data::RecordRandom& random) {
  x[0] = data::random_horizontal_flip(std::move(x[0]), random);
  return x;
}

/// Images to train on, in another order and changed in another way in each epoch. Images that a
/// mirror makes another thing of, such as digits, are not flipped.
inline data::Dataset training_data(const std::string& folder, bool is_flipped = true) {
  data::Dataset images =
      data::cifar10(folder, data::Split::train) | data::shuffle(kDataSeed) | data::repeat();
  if (is_flipped) images = images | data::map(flip);
  return images | data::map(crop);
}

}  // namespace vit
