// Measures the peak speeds of this machine for the roofline model.
#pragma once

#include <cstddef>

namespace tessera::profile {

/// Computes independent chains of f32 fused multiply-adds in registers and returns the number of
/// FLOPs done. `out`: 64 numbers that the chains start from; their results are written there.
double fma_chains(long rounds, float* out);
/// c = a + b
void add_arrays(const float* a, const float* b, float* c, std::size_t count);

struct Peaks {
  double gflops = 0;  // GFLOP/s of f32; a multiplication and an addition count as two
  double gbytes = 0;  // GB/s read and written
};
/// The best of a few short runs with `threads` threads, at most one per core. The first call for a
/// number of threads takes about 30 ms; later calls return the same result.
Peaks machine_peaks(int threads);

}  // namespace tessera::profile
