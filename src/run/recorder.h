// What the engine records while it is traced.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <vector>

#include "run/execution.h"

namespace tessera::run {

/// Where an executable runs: outermost, or nested in a control task of the executable of site
/// `outer`.
struct Site {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  const Executable* executable;
  std::uint32_t outer = kNone;  // number of an earlier site
  std::uint32_t task = 0;       // control task of the outer executable
};

/// One part of a task, run by one thread. Times are those of Clock.
struct PartTime {
  std::uint32_t site;
  std::uint32_t run;   // which run of the site's executable; equal for all tasks of an iteration
  std::uint32_t task;  // of the site's executable
  /// For a task that communicates, whatever thread ran it.
  static constexpr int kCommunicator = -1;
  /// Callers of execute() have number 0 or, while other executions are in flight, numbers from here
  /// on.
  static constexpr int kMoreCallers = 5000;
  int thread;  // from 1 on: workers
  std::int64_t start_ns;
  std::int64_t end_ns;
};

struct ExecutionTrace {
  const Executable* executable;
  int caller = 0;  // number of its thread
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::vector<Site> sites;
  std::vector<PartTime> parts;  // sorted by end time
};

/// A buffer that was allocated or freed.
struct Allocation {
  std::int64_t time_ns;
  const void* address;
  std::int64_t bytes;
  std::int64_t held_bytes;  // by all buffers, afterwards
  std::int64_t peak_bytes;  // since the last reset
  bool is_freed;
  Buffer::Use use;
};

struct EngineTrace {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::vector<ExecutionTrace> executions;  // sorted by end time
  std::vector<Allocation> allocations;
  std::int64_t num_lost = 0;          // parts that exceeded the limit on records
  std::int64_t num_lost_buffers = 0;  // allocations that were not recorded, for lack of memory
};

inline std::int64_t ns_of(Clock::time_point time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

/// The record of an execution while it runs.
class ExecutionRecord {
 private:
  friend class Recorder;
  struct Part {
    const Frame* frame;
    std::uint32_t run;
    std::uint32_t task;
    int thread;
    Clock::time_point start;
    Clock::time_point end;
  };
  ExecutionTrace trace_;
  std::vector<Part> parts_;
  std::map<const Frame*, std::uint32_t> sites_;
};

/// Guarded by the mutex of Measurements.
class Recorder {
 public:
  void start();
  EngineTrace stop();
  bool is_on() const { return is_on_; }

  static void begin(ExecutionRecord& record, const Executable& executable, int caller);
  void add(ExecutionRecord& record, TaskRef ref, int thread, Clock::time_point start,
           Clock::time_point end) {
    if (parts_left_ == 0) {
      trace_.num_lost += 1;
      return;
    }
    parts_left_ -= 1;
    record.parts_.push_back({ref.frame, ref.frame->num_runs(), ref.task, thread, start, end});
  }
  /// Call this while the frames of the execution still exist.
  void end(ExecutionRecord& record);

 private:
  static std::uint32_t site_of(const Frame& frame, ExecutionRecord& record);

  std::atomic<bool> is_on_ = false;
  std::size_t parts_left_ = 0;
  EngineTrace trace_;
};

/// Switches the recording of all buffers of the process on or off.
void record_allocations(bool on);
struct RecordedAllocations {
  std::vector<Allocation> list;
  std::int64_t num_lost = 0;
};
RecordedAllocations take_allocations();

}  // namespace tessera::run
