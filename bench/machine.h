// The peak speeds of this machine, which measured speeds are compared with.
#pragma once

namespace tessera::bench {

/// The peak of f32 fused multiply-adds in GFLOP/s; each counts as two operations. One thread is
/// measured in its CPU time, several threads in wall-clock time.
double fma_peak(int threads);

/// GB/s that a loop reads and writes when it adds two arrays that are far larger than the caches.
double memory_bandwidth(int threads);

}  // namespace tessera::bench
