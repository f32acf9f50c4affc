// Computes cheap values again where they are read late, instead of holding them over a peak of
// memory.
#pragma once

#include "ir/ir.h"

namespace tessera::compile {

struct RecomputeOptions {
  std::int64_t least_bytes = 8 << 20;  // a program whose peak is lower stays as it is
  /// What computing again may cost in a round, as a part of the work of the program.
  double most_work = 1.0 / 16;
  /// A round that lowers the peak by a smaller part of it is not worth its work.
  double least_gain = 1.0 / 32;
};

/// The function with the same results, of lower peak, and barriers between what was computed first
/// and what is computed again; unchanged where nothing is won. Every value has a sharding.
ir::Function recompute(ir::Function function, const RecomputeOptions& options = {});

}  // namespace tessera::compile
