// Waiting without sleeping.
#pragma once

#include <atomic>
#include <thread>

namespace tessera::run {

/// Tells the core that this is a spin loop, so that its other hardware thread can run faster.
inline void pause_core() {
#if defined(__GNUC__) && defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// A mutex that is held for some tens of nanoseconds at a time. It costs half as much as std::mutex
/// when no thread waits. A thread that waits for long gives its core to others, such as the holder.
class SpinMutex {
 public:
  void lock() {
    constexpr int kTries = 100;
    for (int i = 0; is_locked_.exchange(true, std::memory_order_acquire); ++i) {
      while (is_locked_.load(std::memory_order_relaxed)) {
        if (++i < kTries) {
          pause_core();
        } else {
          std::this_thread::yield();
        }
      }
    }
  }
  void unlock() { is_locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> is_locked_ = false;
};

}  // namespace tessera::run
