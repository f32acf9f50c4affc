// The caches of this machine.
#pragma once

#include "base/cache_sizes.h"

namespace tessera::run {

/// What the system reports, with the defaults of CacheSizes where it does not say.
CacheSizes machine_caches();

}  // namespace tessera::run
