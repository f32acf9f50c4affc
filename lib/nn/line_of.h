// The source line that errors of a layer name.
#pragma once

#include <tessera/random.h>

namespace tessera::nn {

/// The user's line for what a layer makes; the caller's line for a layer that is the root itself.
inline std::source_location line_of(const Scope& scope,
                                    std::source_location here = std::source_location::current()) {
  return scope.named_at().line() != 0 ? scope.named_at() : here;
}

}  // namespace tessera::nn
