// How often this program has allocated memory.
#pragma once

#include <cstddef>

namespace tessera::nesting {

std::size_t num_allocations();

}  // namespace tessera::nesting
