// The threads of the engine that have nothing to do: they look for work for a while, then sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tessera::run {

/// Guarded by the mutex of the engine, which must be released with unlock(). There are workers, and
/// callers: the threads that called Engine::execute(), each of which sleeps only during its own
/// execution.
class IdleThreads {
 public:
  struct Caller {
    bool is_asleep = false;
    bool is_woken = false;  // when the mutex is released next
  };

  /// No more threads are woken than there are cores: they would only take time from each other.
  explicit IdleThreads(int num_cores) : num_cores_(num_cores), limit_(num_cores) {}

  /// How many threads may compute.
  void set_limit(int limit) { limit_ = limit; }
  void add_worker() { num_threads_ += 1; }
  void add_caller();
  void remove_caller();
  bool is_empty() const { return num_idle_ == 0; }
  /// Whether a worker should sleep, because callers compute in its place.
  bool has_too_many() const { return num_awake() > limit_; }

  /// Tells threads that spin to look for work in the execution of this caller. If they are too few
  /// to help, others are woken.
  void announce(std::int64_t num_helpers, Caller& caller);
  /// Tells the caller, and threads that spin, that its execution is over.
  void announce_end(Caller& caller);
  /// Releases the mutex, and then wakes threads, because they need it first.
  void unlock(std::unique_lock<std::mutex>& lock);
  /// Locks the mutex. It is held so briefly that it pays to spin for it.
  static void lock(std::unique_lock<std::mutex>& lock);

  /// Returns when there may be work. The mutex is released meanwhile. `caller`: nullptr for a
  /// worker.
  void wait_for_news(std::unique_lock<std::mutex>& lock, Caller* caller);
  /// The same, without spinning.
  void sleep(std::unique_lock<std::mutex>& lock, Caller* caller);

  /// From now on no thread sleeps, until remove_threads().
  void stop();
  bool is_stopping() const { return is_stopping_; }
  /// Call this when all workers have ended and there is no caller.
  void remove_threads();

 private:
  int num_awake() const { return num_threads_ - num_asleep_ - num_callers_asleep_; }
  void wake(Caller& caller);

  const int num_cores_;
  int limit_;
  std::condition_variable wake_, wake_callers_;
  std::atomic<std::uint64_t> news_{0};  // changes whenever idle threads should look
  bool is_stopping_ = false;
  bool wakes_callers_ = false;  // when the mutex is released next
  int num_callers_ = 0;
  int num_callers_asleep_ = 0;
  int num_threads_ = 0;  // workers and callers
  int num_idle_ = 0;     // of them, those that spin or sleep
  int num_spinning_ = 0;
  int num_asleep_ = 0;   // workers, without those that may wake
  int num_woken_ = 0;    // may wake
  int num_to_wake_ = 0;  // of these, when the mutex is released next
};

}  // namespace tessera::run
