// Runs independent calls on a few threads.
#pragma once

#include <cstddef>
#include <functional>

namespace tessera::checkpoint {

/// Calls body(0), ..., body(count - 1), each once, on up to `threads` threads. If one of them
/// throws, calls that have not begun are skipped, and the first exception is rethrown at the end.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& body);

}  // namespace tessera::checkpoint
