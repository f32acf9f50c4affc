// The reference engine: one equation after another, each by its op's reference loops. It knows no
// shardings: every value is whole. The oracle for all other engines.
#pragma once

#include <vector>

#include "base/dot_unit.h"
#include "ir/ir.h"
#include "ops/host_array.h"

namespace tessera::compile {

/// The outputs of `function`; throws InternalError when the inputs are not of its types. A value
/// is freed after its last use. Products of bf16 have the bits of any unit, on every machine.
std::vector<ops::HostArray> interpret(const ir::Function& function,
                                      std::vector<ops::HostArray> inputs,
                                      DotUnit dot_unit = DotUnit::portable);

}  // namespace tessera::compile
