// Which part of an image a random crop takes.
#pragma once

#include <cstdint>

#include <tessera/data.h>

namespace tessera::data {

/// In pixels.
struct Box {
  std::int64_t top, left, height, width;
};

/// As RandomResizedCrop of torchvision chooses it, from random numbers of ours.
Box random_box(std::int64_t height, std::int64_t width, RecordRandom& random,
               const CropOptions& options);

}  // namespace tessera::data
