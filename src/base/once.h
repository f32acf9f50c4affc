// Doing something once.
#pragma once

#include <atomic>
#include <mutex>

namespace tessera {

/// Calls a function once: one that throws is called again the next time. With std::call_once
/// exceptions pass frames of the C library, which ends the program where it has no memory for that.
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
