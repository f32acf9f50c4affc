// Functions in Python that programs call while they run. The package for JAX registers how.
#pragma once

#include <cstdint>

#include <tessera/types.h>

#include "api/transform/module.h"

namespace tessera::plugin {

/// What the package does for the plugin. Functions have numbers. Each of these takes the lock of
/// Python's interpreter, so nobody may wait for them who holds it.
struct PythonCalls {
  /// Calls a function with the elements of its arguments and lets it write those of its results. If
  /// that fails, calls tessera_call_failed with `failure` and a text.
  void (*call)(std::int64_t number, const std::byte* const* arguments, std::byte* const* results,
               void* failure) = nullptr;
  /// Keeps a function alive until as many calls of `release`. False if there is none.
  bool (*hold)(std::int64_t number) = nullptr;
  void (*release)(std::int64_t number) = nullptr;
};

/// The function of this number, which lives as long as the result; empty if there is none.
detail::HostCall python_function(std::int64_t number, const Span& where);

}  // namespace tessera::plugin
