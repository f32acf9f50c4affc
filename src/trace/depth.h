// A bound on functions that are traced inside each other. The stages call themselves for the
// functions in a function, so the bound also keeps them from running out of stack.
#pragma once

#include <cstddef>

#include <tessera/error.h>

namespace tessera::trace {

/// The most functions that a thread may trace inside each other. Threads with a stack below 6 MiB
/// have a lower bound.
constexpr std::size_t kMostDepth = 256;

/// Counts a function as traced inside those that this thread is tracing, as long as it exists.
class Depth {
 public:
  /// Throws UserError if there are too many.
  explicit Depth(const Span& where);
  ~Depth();
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
};

}  // namespace tessera::trace
