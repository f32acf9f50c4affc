// What this machine can do at most: the roof that measured speeds are compared with.
#pragma once

#include <cstddef>

namespace tessera::profile {

/// Chains of fused multiply adds of f32 in registers; returns the flops done. `out`: 64 numbers
/// that the chains start from; their sums go there.
double fma_chains(long rounds, float* out);
/// c = a + b
void add_arrays(const float* a, const float* b, float* c, std::size_t count);

struct Peaks {
  double gflops = 0;  // of f32, multiplications and additions counted
  double gbytes = 0;  // read and written per second
};
/// The best of a few short runs of `threads` threads, or of all cores where these are fewer: some
/// 30 ms in all, measured by the first call for a number of threads.
Peaks machine_peaks(int threads);

}  // namespace tessera::profile
