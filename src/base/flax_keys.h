// Keys of parameters, derived as Flax Linen does from the key given to `init`.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/threefry.h"

namespace tessera {

/// The number that Flax folds into a key for such a parameter.
std::uint32_t flax_fold_data(std::span<const std::string> path_names, std::uint32_t counter);
/// The key of the parameter number `counter` (from 1) of the scope at `path_names` below `root`:
/// blocks_0/Dense_0 makes its kernel with counter 1 and its bias with 2.
/// Source: LazyRng and _fold_in_static, flax/core/scope.py: fold_in of the first four bytes, big
/// endian, of SHA-1(names without separators, then the counter in as few big-endian bytes as hold
/// it).
KeyData flax_fold(KeyData root, std::span<const std::string> path_names, std::uint32_t counter);

}  // namespace tessera
