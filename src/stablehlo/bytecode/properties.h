// Which properties each operation stores.
#pragma once

#include <optional>
#include <string_view>

namespace tessera::stablehlo::bytecode {

/// The names of the properties of `operation` in the order of the file, separated by spaces. A '?'
/// precedes the names of properties that may be missing. nullopt if there is no such operation.
std::optional<std::string_view> properties_of(std::string_view operation);

}  // namespace tessera::stablehlo::bytecode
