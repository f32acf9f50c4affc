// Functions in Python that programs call while they run. The package for JAX registers how.
#pragma once

#include <cstdint>

#include <tessera/types.h>

#include "api/transform/module.h"

namespace tessera::plugin {

/// What the package does for the plugin. Functions have numbers. The first three take the lock of
/// Python's interpreter, so nobody may wait for them who holds it.
struct PythonCalls {
  /// Calls a function with the elements of its arguments and lets it write those of its results. If
  /// that fails, calls tessera_call_failed with `failure` and a text.
  void (*call)(std::int64_t number, const std::byte* const* arguments, std::byte* const* results,
               void* failure) = nullptr;
  /// Keeps a function alive until as many calls of `release`. False if there is none.
  bool (*hold)(std::int64_t number) = nullptr;
  void (*release)(std::int64_t number) = nullptr;
  // Python's own PyGILState_Check, PyEval_SaveThread and PyEval_RestoreThread.
  int (*holds_lock)() = nullptr;
  void* (*give_lock)() = nullptr;
  void (*take_lock)(void* state) = nullptr;
};

/// Gives the lock of Python's interpreter to others while it exists, if its thread holds the lock.
/// Make one before waiting for programs.
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

/// The function of this number, which lives as long as the result; empty if there is none.
detail::HostCall python_function(std::int64_t number, const Span& where);

}  // namespace tessera::plugin
