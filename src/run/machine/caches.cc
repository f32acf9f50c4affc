#include "run/machine/caches.h"

#include <algorithm>
#include <unistd.h>

namespace tessera::run {

namespace {

// Virtual machines may report sizes that no processor has.
constexpr std::int64_t kLeastL1 = 16 << 10;
constexpr std::int64_t kLeastL2 = 256 << 10;

std::int64_t size_of(int name, std::int64_t least, std::int64_t unknown) {
  const std::int64_t bytes = sysconf(name);
  return bytes > 0 ? std::max(bytes, least) : unknown;
}

}  // namespace

CacheSizes machine_caches() {
  CacheSizes sizes;
#if defined(_SC_LEVEL1_DCACHE_SIZE) && defined(_SC_LEVEL2_CACHE_SIZE)
  sizes.l1 = size_of(_SC_LEVEL1_DCACHE_SIZE, kLeastL1, sizes.l1);
  sizes.l2 = size_of(_SC_LEVEL2_CACHE_SIZE, kLeastL2, sizes.l2);
#endif
  return sizes;
}

}  // namespace tessera::run
