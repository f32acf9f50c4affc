// What this machine can do at most: the roof that measured speeds are compared with.
#pragma once

namespace tessera::bench {

/// Products of f32 and their sums, both counted, in GFLOP/s. Of one thread by its own clock, of
/// several by the time that passes.
double fma_peak(int threads);

/// GB read and written per second by a loop that adds two arrays far larger than the caches.
double memory_bandwidth(int threads);

}  // namespace tessera::bench
