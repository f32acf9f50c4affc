// The threads of the engine that have nothing to do: they look for work for a while, then sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tessera::run {

/// Guarded by the mutex of the engine, which must be released with unlock(). Thread 0 is the one
/// that called Engine::execute(); it sleeps only during an execution.
class IdleThreads {
 public:
  /// No more threads are awake than there are cores: they would only take time from each other.
  explicit IdleThreads(int num_cores) : num_cores_(num_cores) {}

  void add_thread() { num_threads_ += 1; }
  bool is_empty() const { return num_idle_ == 0; }

  /// Tells threads that spin to look for work. If they are too few to help, others are woken.
  void announce(std::int64_t num_helpers);
  /// Tells the caller, and threads that spin, that the execution is over.
  void announce_end();
  /// Releases the mutex, and then wakes threads, because they need it first.
  void unlock(std::unique_lock<std::mutex>& lock);
  /// Locks the mutex. It is held so briefly that it pays to spin for it.
  static void lock(std::unique_lock<std::mutex>& lock);

  /// Returns when there may be work. The mutex is released meanwhile.
  void wait_for_news(std::unique_lock<std::mutex>& lock, int thread);
  /// The same, without spinning.
  void sleep(std::unique_lock<std::mutex>& lock, int thread);

  /// From now on no thread sleeps, until remove_threads().
  void stop();
  bool is_stopping() const { return is_stopping_; }
  /// Call this when all threads but the caller have ended.
  void remove_threads();

 private:
  const int num_cores_;
  std::condition_variable wake_, wake_caller_;
  std::atomic<std::uint64_t> news_{0};  // changes whenever idle threads should look
  bool is_stopping_ = false;
  bool is_caller_asleep_ = false;
  bool wakes_caller_ = false;  // when the mutex is released next
  int num_threads_ = 1;        // that have started, with the caller
  int num_idle_ = 0;           // of them, those that spin or sleep
  int num_spinning_ = 0;
  int num_asleep_ = 0;   // without the caller, and without those that may wake
  int num_woken_ = 0;    // may wake
  int num_to_wake_ = 0;  // of these, when the mutex is released next
};

}  // namespace tessera::run
