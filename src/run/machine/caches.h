// The caches of this machine.
#pragma once

#include "base/cache_sizes.h"

namespace tessera::run {

/// The sizes that the system reports, or the defaults of CacheSizes where it reports none.
CacheSizes machine_caches();

}  // namespace tessera::run
