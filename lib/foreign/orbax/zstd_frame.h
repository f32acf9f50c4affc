// Decompresses data of which only the greatest size is known.
#pragma once

#include <span>

#include "foreign/foreign.h"

namespace tessera::foreign {

/// The content of one zstd frame, at most `limit` bytes. Throws BadText if it is damaged or longer.
Bytes unpack_zstd(std::span<const std::uint8_t> frame, std::uint64_t limit);

}  // namespace tessera::foreign
