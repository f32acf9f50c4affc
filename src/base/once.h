// A replacement for std::call_once.
#pragma once

#include <atomic>
#include <mutex>

namespace tessera {

/// Calls a function once; if it throws, the next call tries again. With std::call_once, exceptions
/// would pass through frames of the C library, which ends the program if it has no memory for that.
class Once {
 public:
  template <typename F>
  void call(const F& function) {
    if (is_done_) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_done_) return;
    function();
    is_done_ = true;
  }

 private:
  std::atomic<bool> is_done_ = false;
  std::mutex mutex_;
};

}  // namespace tessera
