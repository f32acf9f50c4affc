// Joins reducing collectives of the same kind, reduction and group into few large ones.
//
// A joined collective stands after the definition of its last operand and before the first use of
// any of its results, other than by views and sums, which wait for what is added to them. Gathers
// stay alone: joining them would hold more weights at once.
#pragma once

#include "ir/ir.h"

namespace tessera::partition {

struct CombineOptions {
  std::int64_t max_bytes = std::int64_t{32} << 20;  // per device and collective
};

ir::Function combine_collectives(ir::Function function, CombineOptions options = {});

}  // namespace tessera::partition
