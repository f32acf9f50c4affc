// What the engine keeps of executions while it is traced.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <vector>

#include "run/execution.h"

namespace tessera::run {

/// An executable in its place: outermost, or nested in a control task of the one at `outer`.
struct Site {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  const Executable* executable;
  std::uint32_t outer = kNone;  // number of a site before this one
  std::uint32_t task = 0;       // of that executable
};

/// A part of a task that a thread ran. Times are those of Clock.
struct PartTime {
  std::uint32_t site;
  std::uint32_t run;   // of the site's executable: the same for tasks of one step of a loop
  std::uint32_t task;  // of the site's executable
  int thread;          // 0: the one that called execute()
  std::int64_t start_ns;
  std::int64_t end_ns;
};

struct ExecutionTrace {
  const Executable* executable;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::vector<Site> sites;
  std::vector<PartTime> parts;  // by end
};

/// A buffer that came or went.
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
  std::vector<ExecutionTrace> executions;
  std::vector<Allocation> allocations;
  std::int64_t num_lost = 0;          // parts beyond the most that are kept
  std::int64_t num_lost_buffers = 0;  // allocations for which there was no memory
};

inline std::int64_t ns_of(Clock::time_point time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

/// The mutex of the engine guards it.
class Recorder {
 public:
  void start();
  EngineTrace stop();
  bool is_on() const { return is_on_; }

  void begin_execution(const Executable& executable);
  void add(TaskRef ref, int thread, Clock::time_point start, Clock::time_point end) {
    if (parts_left_ == 0) {
      trace_.num_lost += 1;
      return;
    }
    parts_left_ -= 1;
    parts_.push_back({ref.frame, ref.frame->num_runs(), ref.task, thread, start, end});
  }
  /// While the frames of the execution still stand.
  void end_execution();

 private:
  struct Part {
    const Frame* frame;
    std::uint32_t run;
    std::uint32_t task;
    int thread;
    Clock::time_point start;
    Clock::time_point end;
  };
  std::uint32_t site_of(const Frame& frame, ExecutionTrace& execution);

  bool is_on_ = false;
  std::size_t parts_left_ = 0;
  std::vector<Part> parts_;                      // of the execution that runs
  std::map<const Frame*, std::uint32_t> sites_;  // of it
  EngineTrace trace_;
};

/// Buffers are recorded wherever they are made.
void record_allocations(bool on);
struct RecordedAllocations {
  std::vector<Allocation> list;
  std::int64_t num_lost = 0;
};
RecordedAllocations take_allocations();

}  // namespace tessera::run
