// Sizes of the caches of a core.
#pragma once

#include <cstdint>

namespace tessera {

/// In bytes. Kernels cut their work into blocks that fit; results do not depend on it. The defaults
/// are for machines that do not say.
struct CacheSizes {
  std::int64_t l1 = 32 << 10;   ///< of data
  std::int64_t l2 = 512 << 10;  ///< of one core
  bool operator==(const CacheSizes&) const = default;
};

}  // namespace tessera
