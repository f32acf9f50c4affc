// What a program is compiled for.
#pragma once

#include "base/cache_sizes.h"
#include "run/world.h"

namespace tessera::run {

struct Target {
  /// Threads that compute. Tasks are cut into parts for them; results do not depend on it.
  int num_workers = 1;
  /// Kernels cut their work into blocks that fit. Results do not depend on it.
  CacheSizes caches = {};
  /// With a transport, the program computes what the devices of this process compute. Its
  /// collectives use the transport, which must outlive the program.
  World world = {};
  /// false: the program is only looked at, each process has one device, and collectives have no
  /// kernels.
  bool runs = true;
};

}  // namespace tessera::run
