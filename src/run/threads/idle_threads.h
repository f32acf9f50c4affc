// The threads of the engine that have nothing to do: they look for work for a while, then sleep.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tessera::run {

/// These are workers, and callers: the threads that called Engine::execute(), each of which sleeps
/// only during its own execution.
///
/// A thread that finds no work calls look(), looks again, and then calls found_work(), wait() or
/// sleep(). A thread that makes work calls may_help() afterwards, and then announce(). So at least
/// one of the two sees the other, and no lock is taken while all threads are busy.
class IdleThreads {
 public:
  struct Caller {
    std::atomic<bool> is_asleep = false;
    bool is_woken = false;
  };

  /// No more threads are woken than there are cores: more would only take time from each other.
  explicit IdleThreads(int num_cores) : num_cores_(num_cores), limit_(num_cores) {}

  /// How many threads may compute.
  void set_limit(int limit) { limit_ = limit; }
  void add_worker() { num_threads_ += 1; }
  void add_caller() {
    num_threads_ += 1;
    num_callers_ += 1;
  }
  void remove_caller() {
    num_threads_ -= 1;
    num_callers_ -= 1;
  }
  /// Whether there are threads that look for work, or that may be woken for the execution of this
  /// caller.
  bool may_help(const Caller& caller) const {
    const int idle = num_idle_.load();
    if (idle == 0) return false;
    return idle > num_asleep_.load() + num_callers_asleep_.load() || may_wake(caller);
  }
  /// Whether a worker should sleep, because callers compute in its place.
  bool has_too_many() const { return num_awake() > limit_; }

  /// Tells threads that spin to look for work in the execution of this caller. If they are too few
  /// to help, others are woken.
  void announce(std::int64_t num_helpers, Caller& caller);
  /// Tells the caller, and threads that spin, that its execution is over.
  void announce_end(Caller& caller);

  /// Returns a number to pass to wait() or sleep(), which wait for later news.
  std::uint64_t look();
  void found_work() { num_idle_.fetch_sub(1); }
  /// Returns when there may be work. `caller`: nullptr for a worker.
  void wait(std::uint64_t seen, Caller* caller);
  /// The same, without spinning.
  void sleep(std::uint64_t seen, Caller* caller);

  /// From now on no thread sleeps, until remove_threads().
  void stop();
  bool is_stopping() const { return is_stopping_.load(std::memory_order_acquire); }
  /// Call this when all workers have ended and there is no caller.
  void remove_threads();

 private:
  int num_awake() const { return num_threads_ - num_asleep_ - num_callers_asleep_; }
  /// The caller is woken beyond the limit if there are other callers, because they compute only for
  /// themselves.
  bool may_wake(const Caller& caller) const {
    if (num_callers_ > 1 && caller.is_asleep.load()) return true;
    return num_awake() < most_awake();
  }
  int most_awake() const { return std::min<int>(num_cores_, limit_); }

  const int num_cores_;
  std::atomic<int> limit_;
  std::atomic<std::uint64_t> news_{0};  // changes whenever idle threads should look
  std::atomic<int> num_callers_ = 0;
  std::atomic<int> num_threads_ = 0;  // workers and callers
  std::atomic<int> num_idle_ = 0;     // those of them that look, spin or sleep
  std::atomic<int> num_spinning_ = 0;
  std::atomic<bool> is_stopping_ = false;

  std::mutex mutex_;  // for changes of the members below
  std::condition_variable wake_, wake_callers_;
  std::atomic<int> num_callers_asleep_ = 0;
  std::atomic<int> num_asleep_ = 0;  // workers, except those that may wake
  int num_woken_ = 0;                // may wake
};

}  // namespace tessera::run
