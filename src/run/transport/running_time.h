// How long a process has waited, not counting the time that it was stopped.
#pragma once

#include <algorithm>
#include <chrono>

namespace tessera::run {

/// A clock that ignores the time during which its process is stopped, for example by Ctrl-Z. At
/// most `most_between` is counted between two calls of look(), so call it more often than that.
class RunningTime {
 public:
  explicit RunningTime(std::chrono::nanoseconds most_between) : most_between_(most_between) {}

  /// The time since the last call, or since construction; at most `most_between`.
  std::chrono::nanoseconds look() {
    const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
    const std::chrono::nanoseconds passed = now - last_;
    last_ = now;
    return std::min(passed, most_between_);
  }

 private:
  std::chrono::nanoseconds most_between_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace tessera::run
