// Waiting without sleeping.
#pragma once

#include <atomic>
#include <mutex>

namespace tessera::run {

/// Tells the core that this is a spin loop, so that its other hardware thread can run faster.
inline void pause_core() {
#if defined(__GNUC__) && defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// Locks a mutex that is held so briefly that it pays to spin for it.
inline std::unique_lock<std::mutex> lock_by_spinning(std::mutex& mutex) {
  constexpr int kTries = 100;
  std::unique_lock<std::mutex> lock(mutex, std::defer_lock);
  for (int i = 0; i < kTries; ++i) {
    if (lock.try_lock()) return lock;
    pause_core();
  }
  lock.lock();
  return lock;
}

}  // namespace tessera::run
