// Counts the memory allocations of this program.
#pragma once

#include <cstddef>

namespace tessera::nesting {

std::size_t num_allocations();

}  // namespace tessera::nesting
