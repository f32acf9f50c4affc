// Independent pieces of work on a few threads.
#pragma once

#include <cstddef>
#include <functional>

namespace tessera::checkpoint {

/// Calls body(0), ..., body(count - 1), each once, on up to `threads` threads. Throws what one of
/// them threw; those that have not begun by then are left out.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& body);

}  // namespace tessera::checkpoint
