// How long a process has waited, not counting the time that it was stopped.
#pragma once

#include <algorithm>
#include <chrono>

namespace tessera::run {

/// A clock that stands still while its process is stopped, as by Ctrl-Z: of the time between two
/// looks at it no more counts than `most_between`. Look more often than that.
class RunningTime {
 public:
  explicit RunningTime(std::chrono::nanoseconds most_between) : most_between_(most_between) {}

  /// What has passed since the last look, or since the clock was made.
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
