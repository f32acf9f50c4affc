// Chooses the part of an image that a random crop takes.
#pragma once

#include <cstdint>

#include <tessera/data.h>

namespace tessera::data {

/// A part of an image, in pixels.
struct Box {
  std::int64_t top, left, height, width;
};

/// Chooses a box by the rules of torchvision's RandomResizedCrop, but with the random numbers of
/// `random`. `height` and `width` are those of the image in pixels.
Box random_box(std::int64_t height, std::int64_t width, RecordRandom& random,
               const CropOptions& options);

}  // namespace tessera::data
