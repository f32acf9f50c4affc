// Which properties each operation stores.
#pragma once

#include <optional>
#include <string_view>

namespace tessera::stablehlo::bytecode {

/// The names of the properties of `operation` in the order of the file, separated by spaces; '?'
/// before those that may be missing. Nothing if there is no such operation.
std::optional<std::string_view> properties_of(std::string_view operation);

}  // namespace tessera::stablehlo::bytecode
