// Batching of equations with nested functions.
#pragma once

#include "batch/batch.h"
#include "ops/record.h"

namespace tessera::batch {

/// Results of one equation for the batch.
struct Results {
  std::vector<ir::ValueId> ids;
  std::vector<bool> is_batched;
};

/// For ops whose batch rule is ops::batched_inside().
Results batch_inside(ops::BatchContext& c);

}  // namespace tessera::batch
