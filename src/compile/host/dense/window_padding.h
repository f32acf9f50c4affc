// Padded arrays that only window kernels read. These kernels leave the padding out and read the
// unpadded array, so that nothing is copied.
#pragma once

#include <map>
#include <vector>

#include "ir/ir.h"

namespace tessera::compile::host {

/// The padded f32 arrays that only such kernels read, with all their readers.
std::map<ir::ValueId, std::vector<const ir::Equation*>> paddings_of_windows(
    const ir::Function& function);
/// Whether the reader gives the same bits if it leaves out padding that has this value.
bool may_leave_out(const ir::Equation& reader, double fill);

}  // namespace tessera::compile::host
