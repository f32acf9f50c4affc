// Padded arrays that only kernels on windows read. They leave the padding out and read the array,
// so that nothing is copied.
#pragma once

#include <map>
#include <vector>

#include "ir/ir.h"

namespace tessera::compile::host {

/// The padded arrays of f32 that only such kernels read, with all readers.
std::map<ir::ValueId, std::vector<const ir::Equation*>> paddings_of_windows(
    const ir::Function& function);
/// Whether the reader gives the same bits if it leaves out padding with this number.
bool may_leave_out(const ir::Equation& reader, double fill);

}  // namespace tessera::compile::host
