// Python functions that programs call while they run. The package for JAX registers how to call
// them.
#pragma once

#include <cstdint>

#include <tessera/types.h>

#include "api/transform/module.h"

namespace tessera::plugin {

/// What the package does for the plugin. Python functions have numbers. The first three members
/// take the lock of Python's interpreter, so a thread that holds it must not wait for them.
struct PythonCalls {
  /// Calls a function with the elements of its arguments; the function writes the elements of its
  /// results. If that fails, calls tessera_call_failed with `failure` and a text.
  void (*call)(std::int64_t number, const std::byte* const* arguments, std::byte* const* results,
               void* failure) = nullptr;
  /// Keeps a function alive until `release` was called as often. False if there is none.
  bool (*hold)(std::int64_t number) = nullptr;
  void (*release)(std::int64_t number) = nullptr;
  // Python's own PyGILState_Check, PyEval_SaveThread and PyEval_RestoreThread.
  int (*holds_lock)() = nullptr;
  void* (*give_lock)() = nullptr;
  void (*take_lock)(void* state) = nullptr;
};

/// While it exists, releases the lock of Python's interpreter, if this thread holds it. Make one
/// before waiting for programs.
class WithoutPythonLock {
 public:
  WithoutPythonLock();
  ~WithoutPythonLock();
  WithoutPythonLock(const WithoutPythonLock&) = delete;
  WithoutPythonLock& operator=(const WithoutPythonLock&) = delete;

 private:
  void (*take_)(void* state) = nullptr;
  void* state_ = nullptr;
};

/// The function with this number. It lives as long as the result; empty if there is none.
detail::HostCall python_function(std::int64_t number, const Span& where);

}  // namespace tessera::plugin
