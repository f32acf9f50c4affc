// Checks that a training state has no NaN and no infinity.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tessera/checkpoint.h>

namespace tessera::cli {

/// The first array with a NaN or an infinity, as `path: f32[2,3]`; nullopt if all are finite. With
/// one process per device this is a collective: all processes must call it.
std::optional<std::string> first_not_finite(const std::vector<checkpoint::NamedArray>& arrays);

}  // namespace tessera::cli
