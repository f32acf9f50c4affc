// Keys of parameters, derived as Flax Linen does from the key given to `init`.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/threefry.h"

namespace tessera {

/// The number that Flax folds into the root key for the parameter that flax_fold() describes.
std::uint32_t flax_fold_data(std::span<const std::string> path_names, std::uint32_t counter);
/// The key of parameter number `counter` (from 1) in the scope at `path_names` below `root`. For
/// example, blocks_0/Dense_0 makes its kernel with counter 1 and its bias with 2.
/// Source: LazyRng and _fold_in_static, flax/core/scope.py: fold_in of the first four bytes, big
/// endian, of SHA-1(names without separators, then the counter in the fewest big-endian bytes that
/// hold it).
KeyData flax_fold(KeyData root, std::span<const std::string> path_names, std::uint32_t counter);

}  // namespace tessera
