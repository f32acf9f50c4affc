// Who may use the engine: several executions, or one thread that changes it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tessera::run {

/// A queue: nothing starts before what came earlier.
class Admission {
 public:
  explicit Admission(int most) : most_(most) {}

  /// Returns when fewer than `most` executions are in flight and, if this one communicates with
  /// other processes, no other execution that does so is in flight.
  void begin_execution(bool communicates);
  void end_execution(bool communicates);

  /// Returns when no execution is in flight; none starts before end_change().
  void begin_change();
  void end_change();
  /// Call this within a change.
  void set_most(int most) { most_ = most; }

 private:
  template <typename Condition>
  void wait(std::unique_lock<std::mutex>& lock, const Condition& may_start);
  void serve_next();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t num_tickets_ = 0;
  std::uint64_t served_ = 0;  // the ticket whose turn it is
  int most_;
  int in_flight_ = 0;
  bool is_communicating_ = false;
};

/// An execution in flight.
class Admitted {
 public:
  Admitted(Admission& admission, bool communicates)
      : admission_(admission), communicates_(communicates) {
    admission_.begin_execution(communicates_);
  }
  ~Admitted() { admission_.end_execution(communicates_); }
  Admitted(const Admitted&) = delete;
  Admitted& operator=(const Admitted&) = delete;

 private:
  Admission& admission_;
  bool communicates_;
};

/// The time in which nothing runs.
class Alone {
 public:
  explicit Alone(Admission& admission) : admission_(admission) { admission_.begin_change(); }
  ~Alone() { admission_.end_change(); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  Admission& admission_;
};

}  // namespace tessera::run
