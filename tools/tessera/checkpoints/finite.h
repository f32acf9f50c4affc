// Whether the numbers of a training state are numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tessera/checkpoint.h>

namespace tessera::cli {

/// The first of the arrays with a NaN or an infinity, as `path: f32[2,3]`; none when all are
/// finite. With one process per device all of them make this call.
std::optional<std::string> first_not_finite(const std::vector<checkpoint::NamedArray>& arrays);

}  // namespace tessera::cli
