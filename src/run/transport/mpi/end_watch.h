// Ends a process that is stopped while it leaves the others.
#pragma once

#include <chrono>
#include <functional>

namespace tessera::run {

/// A small process beside this one. The other ranks watch this process as long as they exchange
/// messages; after that nobody would notice a SIGSTOP, and the launcher would wait for ever.
class EndWatch {
 public:
  /// Call this while the process has few threads: it forks. `on_stopped` is called in the new
  /// process, just before this one is killed. Without pidfds nothing is watched.
  EndWatch(std::chrono::milliseconds timeout, const std::function<void()>& on_stopped);
  /// Ends the other process, unless begin() was called.
  ~EndWatch();
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

  /// From now on this process is killed if it stands still in the state "stopped" for the time.
  void begin();

 private:
  int pipe_ = -1;  // its writing end
  bool has_begun_ = false;
};

}  // namespace tessera::run
