// The reference engine: runs one equation after another by the reference loops of the ops. It
// ignores shardings: every value is whole. All other engines are tested against it.
#pragma once

#include <vector>

#include "base/dot_unit.h"
#include "ir/ir.h"
#include "ops/host_array.h"

namespace tessera::compile {

/// The outputs of `function`. Throws InternalError if the inputs have other types. A value is freed
/// after its last use. Products of bf16 can have the bits of any unit, on every machine.
std::vector<ops::HostArray> interpret(const ir::Function& function,
                                      std::vector<ops::HostArray> inputs,
                                      DotUnit dot_unit = DotUnit::portable);

}  // namespace tessera::compile
