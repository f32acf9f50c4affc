// Combines reducing collectives of the same kind, reduction and group into few large ones.
//
// A combined collective comes after the definition of its last operand and before the first use of
// any of its results. Views and sums of results are moved behind it. Gathers are not combined,
// since more weights would then be held at once.
#pragma once

#include "ir/ir.h"

namespace tessera::partition {

struct CombineOptions {
  std::int64_t max_bytes = std::int64_t{32} << 20;  // per device and collective
};

ir::Function combine_collectives(ir::Function function, CombineOptions options = {});

}  // namespace tessera::partition
