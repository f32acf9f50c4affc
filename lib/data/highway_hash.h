// The checksum of Riegeli files.
#pragma once

#include <cstdint>
#include <span>

namespace tessera::data {

/// HighwayHash64 with Riegeli's key.
std::uint64_t highway_hash(std::span<const std::uint8_t> bytes);

}  // namespace tessera::data
