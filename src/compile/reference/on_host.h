// One op at a time on whole arrays, as the reference engine computes, but with the kernels of the
// host engine, which are faster and give the same bits.
#pragma once

#include <vector>

#include "base/dot_unit.h"
#include "ir/ir.h"
#include "ops/host_array.h"

namespace tessera::compile {

/// Whether that pays: it does for equations with much work, such as matrix products, that have no
/// nested functions.
bool is_worth_host(const ir::Function& function, const ir::Equation& equation);

/// The results of one equation of `function`.
std::vector<ops::HostArray> evaluate_on_host(const ir::Function& function,
                                             const ir::Equation& equation,
                                             const std::vector<const ops::HostArray*>& operands,
                                             DotUnit dot_unit);

}  // namespace tessera::compile
