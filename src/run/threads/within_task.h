// Executions within executions.
#pragma once

namespace tessera::run {

/// While it exists, executions that this thread starts are part of one that waits for this thread:
/// they do not wait until that one ends.
class WithinTask {
 public:
  WithinTask();
  ~WithinTask();
  WithinTask(const WithinTask&) = delete;
  WithinTask& operator=(const WithinTask&) = delete;
  /// Whether there is one in this thread.
  static bool is_here();
};

}  // namespace tessera::run
