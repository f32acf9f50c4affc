#include "run/threads/idle_threads.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tessera::run {

namespace {

/// Tells the core that this is a spin loop, so that its other hardware thread can run faster.
void pause() {
#if defined(__GNUC__) && defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

void IdleThreads::add_caller() {
  num_threads_ += 1;
  num_callers_ += 1;
}

void IdleThreads::remove_caller() {
  num_threads_ -= 1;
  num_callers_ -= 1;
}

void IdleThreads::wake(Caller& caller) {
  caller.is_woken = true;
  wakes_callers_ = true;
}

void IdleThreads::announce(std::int64_t num_helpers, Caller& caller) {
  news_.fetch_add(1, std::memory_order_release);
  // Threads that have been woken wake others in turn, so that no thread wakes all of them.
  const int most = std::min(std::min(num_cores_, limit_) - num_awake(), std::max(num_awake(), 1));
  // Threads that spin or are awake may work for other callers.
  const bool is_sure = num_callers_ == 1;
  if (is_sure) num_helpers = std::min<std::int64_t>(num_helpers - num_spinning_, most);
  if (num_helpers > 0 && caller.is_asleep && !caller.is_woken) {
    wake(caller);
    num_helpers -= 1;
  }
  num_helpers = std::min<std::int64_t>(num_helpers, most);
  const auto count = static_cast<int>(std::clamp<std::int64_t>(num_helpers, 0, num_asleep_));
  num_asleep_ -= count;
  num_woken_ += count;
  num_to_wake_ += count;
}

void IdleThreads::announce_end(Caller& caller) {
  news_.fetch_add(1, std::memory_order_release);
  if (caller.is_asleep) wake(caller);
}

void IdleThreads::unlock(std::unique_lock<std::mutex>& lock) {
  const bool wakes_callers = std::exchange(wakes_callers_, false);
  const int count = std::exchange(num_to_wake_, 0);
  lock.unlock();
  if (wakes_callers) wake_callers_.notify_all();
  for (int i = 0; i < count; ++i) wake_.notify_one();
}

void IdleThreads::lock(std::unique_lock<std::mutex>& lock) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (lock.try_lock()) return;
    pause();
  }
  lock.lock();
}

void IdleThreads::wait_for_news(std::unique_lock<std::mutex>& lock, Caller* caller) {
  // Spin for a while before sleeping: a sleep and a wake-up take longer than most gaps between
  // tasks, and waking others also costs the thread that does it.
  using Clock = std::chrono::steady_clock;
  constexpr auto kLongestLook = std::chrono::microseconds(50);
  constexpr int kLooks = 64;  // between two readings of the clock
  const std::uint64_t seen = news_.load(std::memory_order_acquire);
  const auto is_new = [&] { return news_.load(std::memory_order_acquire) != seen; };
  num_idle_ += 1;
  if (num_spinning_ + 1 < num_cores_) {
    num_spinning_ += 1;
    unlock(lock);
    const Clock::time_point start = Clock::now();
    do {
      for (int i = 0; i < kLooks && !is_new(); ++i) pause();
    } while (!is_new() && Clock::now() - start < kLongestLook);
    IdleThreads::lock(lock);
    num_spinning_ -= 1;
  }
  num_idle_ -= 1;
  if (!is_new()) sleep(lock, caller);
}

void IdleThreads::sleep(std::unique_lock<std::mutex>& lock, Caller* caller) {
  if (std::exchange(wakes_callers_, false)) wake_callers_.notify_all();
  for (; num_to_wake_ > 0; --num_to_wake_) wake_.notify_one();
  num_idle_ += 1;
  if (caller != nullptr) {
    caller->is_asleep = true;
    num_callers_asleep_ += 1;
    wake_callers_.wait(lock, [&] { return caller->is_woken; });
    num_callers_asleep_ -= 1;
    *caller = {};
  } else {
    num_asleep_ += 1;
    wake_.wait(lock, [&] { return num_woken_ > 0 || is_stopping_; });
    num_woken_ -= 1;
  }
  num_idle_ -= 1;
}

void IdleThreads::stop() {
  is_stopping_ = true;
  news_.fetch_add(1, std::memory_order_release);
  wake_.notify_all();
}

void IdleThreads::remove_threads() {
  is_stopping_ = false;
  num_threads_ = 0;
  num_idle_ = num_asleep_ = num_woken_ = num_to_wake_ = 0;
}

}  // namespace tessera::run
