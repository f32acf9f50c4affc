// How fast the threads of this machine compute.
#pragma once

#include <tessera/types.h>

namespace tessera::cli {

struct Rates {
  double flops = 0;             // FLOP/s of a matrix product
  double memory_bandwidth = 0;  // bytes/s that elementwise work on large arrays reads and writes
};

/// The best of a few short runs of each, with the number of threads that is set. Takes about 0.1 s.
/// `dtype`: of the operands of the product.
Rates measured_rates(DType dtype);

}  // namespace tessera::cli
