// The layout of arrays, which is always row-major.
#pragma once

#include <cstddef>

#include "plugin/failure.h"
#include "run/pjrt/abi_plugin.h"

namespace tessera::plugin {

/// The result lives as long as the process.
const abi::HeldLayout* row_major_layout(std::size_t rank);

/// Without this extension, JAX asks for the text of each program that it loads to read the layouts
/// from it, and converting the text takes longer than Tessera takes to compile the program.
abi::LayoutsExtension layouts_extension();

}  // namespace tessera::plugin
