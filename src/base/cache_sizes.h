// Sizes of the caches of a core.
#pragma once

#include <cstdint>

namespace tessera {

/// In bytes. Kernels cut their work into blocks that fit the caches; results do not depend on the
/// sizes. The defaults are for machines that do not report theirs.
struct CacheSizes {
  std::int64_t l1 = 32 << 10;   ///< the data cache
  std::int64_t l2 = 512 << 10;  ///< per core
  bool operator==(const CacheSizes&) const = default;
};

}  // namespace tessera
