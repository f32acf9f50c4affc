// Compares what another compiler computed with what Tessera computed.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "tests/stablehlo/cases.h"

namespace tessera::testing {

/// What differs in the outputs of all devices, in the order of `HloCase::output_bytes`; nullopt if
/// all elements are near enough.
std::optional<std::string> difference(const HloCase& c, std::span<const std::byte> outputs);

}  // namespace tessera::testing
