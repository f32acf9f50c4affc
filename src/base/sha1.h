// SHA-1, for the key folding of Flax; not for security.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

/// The digest of the bytes of `data`. Source: FIPS 180-4.
std::array<std::uint8_t, 20> sha1(std::string_view data);

}  // namespace tessera
