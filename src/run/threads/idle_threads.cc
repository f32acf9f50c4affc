#include "run/threads/idle_threads.h"

#include <algorithm>
#include <chrono>

#include "run/machine/clock.h"
#include "run/threads/spin.h"

namespace tessera::run {

void IdleThreads::announce(std::int64_t num_helpers, Caller& caller) {
  news_.fetch_add(1);
  const bool nobody_sleeps = num_asleep_.load() == 0 && !caller.is_asleep.load();
  if (nobody_sleeps || !may_wake(caller)) return;
  // With several callers, threads that spin or are awake may work for the others.
  const bool is_sure = num_callers_.load(std::memory_order_relaxed) == 1;
  if (is_sure) num_helpers -= num_spinning_.load(std::memory_order_relaxed);
  if (num_helpers <= 0) return;
  std::unique_lock<std::mutex> lock(mutex_);
  // Threads that have been woken wake others in turn, so that no thread wakes all of them.
  const std::int64_t most = std::min(most_awake() - num_awake(), std::max(num_awake(), 1));
  if (is_sure) num_helpers = std::min(num_helpers, most);
  const bool wakes_caller = num_helpers > 0 && caller.is_asleep && !caller.is_woken;
  if (wakes_caller) {
    caller.is_woken = true;
    num_helpers -= 1;
  }
  num_helpers = std::min(num_helpers, most);
  const auto count = static_cast<int>(std::clamp<std::int64_t>(num_helpers, 0, num_asleep_.load()));
  num_asleep_ -= count;
  num_woken_ += count;
  lock.unlock();  // threads that wake up need it
  if (wakes_caller) wake_callers_.notify_all();
  for (int i = 0; i < count; ++i) wake_.notify_one();
}

void IdleThreads::announce_end(Caller& caller) {
  news_.fetch_add(1);
  if (!caller.is_asleep.load()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!caller.is_asleep) return;
    caller.is_woken = true;
  }
  wake_callers_.notify_all();
}

std::uint64_t IdleThreads::look() {
  num_idle_.fetch_add(1);
  return news_.load();
}

void IdleThreads::wait(std::uint64_t seen, Caller* caller) {
  // Spin for a while before sleeping: a sleep and a wake-up take longer than most gaps between
  // tasks, and waking others also costs the thread that does it.
  constexpr auto kLongestLook = std::chrono::microseconds(50);
  constexpr int kLooks = 64;  // between two readings of the clock
  const auto is_new = [&] { return news_.load(std::memory_order_acquire) != seen; };
  if (num_spinning_.fetch_add(1) + 1 < num_cores_) {
    const Clock::time_point start = Clock::now();
    do {
      for (int i = 0; i < kLooks && !is_new(); ++i) pause_core();
    } while (!is_new() && Clock::now() - start < kLongestLook);
  }
  num_spinning_.fetch_sub(1);
  if (is_new()) return found_work();
  sleep(seen, caller);
}

/// A thread that announces news changes news_ before it looks for threads that sleep.
void IdleThreads::sleep(std::uint64_t seen, Caller* caller) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (caller != nullptr) {
    caller->is_asleep = true;
    num_callers_asleep_ += 1;
    if (news_.load() == seen) wake_callers_.wait(lock, [&] { return caller->is_woken; });
    num_callers_asleep_ -= 1;
    caller->is_asleep = false;
    caller->is_woken = false;
  } else {
    num_asleep_ += 1;
    if (news_.load() == seen && !is_stopping()) {
      wake_.wait(lock, [&] { return num_woken_ > 0 || is_stopping(); });
      num_woken_ -= 1;
    } else {
      num_asleep_ -= 1;
    }
  }
  found_work();
}

void IdleThreads::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_.store(true, std::memory_order_release);
  }
  news_.fetch_add(1);
  wake_.notify_all();
}

void IdleThreads::remove_threads() {
  is_stopping_ = false;
  num_threads_ = 0;
  num_idle_ = num_asleep_ = num_woken_ = 0;
}

}  // namespace tessera::run
