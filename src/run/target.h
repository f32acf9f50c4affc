// What a program is compiled for.
#pragma once

#include "base/cache_sizes.h"
#include "run/world.h"

namespace tessera::run {

struct Target {
  /// Threads that compute. Tasks are cut into parts for them; results do not depend on it.
  int num_workers = 1;
  /// Kernels cut their work into blocks that fit the caches. Results do not depend on the sizes.
  CacheSizes caches = {};
  /// With a transport, the program computes the share of this process's devices. Its collectives
  /// use the transport, which must outlive the program.
  World world = {};
  /// false: the program is only inspected, each process has one device, and collectives have no
  /// kernels.
  bool runs = true;
};

}  // namespace tessera::run
