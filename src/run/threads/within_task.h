// Executions within executions.
#pragma once

namespace tessera::run {

/// While it exists, executions that this thread starts are part of an execution that waits for this
/// thread: they do not wait until that one ends.
class WithinTask {
 public:
  WithinTask();
  ~WithinTask();
  WithinTask(const WithinTask&) = delete;
  WithinTask& operator=(const WithinTask&) = delete;
  /// Whether this thread has such an object.
  static bool is_here();
};

}  // namespace tessera::run
