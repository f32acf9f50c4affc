// The order of the elements of arrays, which is always row-major.
#pragma once

#include <cstddef>

#include "plugin/failure.h"
#include "run/pjrt/abi_plugin.h"

namespace tessera::plugin {

/// Lives as long as the process.
const abi::HeldLayout* row_major_layout(std::size_t rank);

/// Without it JAX asks for the text of each program that it loads, to read the layouts from it, and
/// takes longer to convert the text than Tessera to compile it.
abi::LayoutsExtension layouts_extension();

}  // namespace tessera::plugin
