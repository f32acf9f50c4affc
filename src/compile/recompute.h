// Computes cheap values again where they are read late, instead of holding them across a peak of
// memory.
#pragma once

#include "ir/ir.h"

namespace tessera::compile {

struct RecomputeOptions {
  std::int64_t least_bytes = 8 << 20;  // a program whose peak is lower stays as it is
  /// The most work that a round may add, as a fraction of the work of the program.
  double most_work = 1.0 / 16;
  /// A round that lowers the peak by a smaller fraction is not worth its work.
  double least_gain = 1.0 / 32;
};

/// A function with the same results and a lower peak, with barriers between the original
/// computations and the repeated ones; unchanged if nothing is gained. Every value has a sharding.
ir::Function recompute(ir::Function function, const RecomputeOptions& options = {});

}  // namespace tessera::compile
