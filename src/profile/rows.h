// From what the engine recorded to the rows of a profile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "profile/machine.h"
#include "profile/program.h"
#include "profile/space.h"
#include "run/recorder.h"

namespace tessera::profile {

/// A step of training, in the time of the engine.
struct StepTime {
  std::int64_t number;
  std::int64_t start_ns;
  std::int64_t end_ns;
};

struct Trace {
  run::EngineTrace engine;
  std::vector<TracedProgram> programs;  // in the order of their first execution
  std::vector<StepTime> steps;
  int rank = -1;  // of the only device that this process computes for; -1: it does for all
  int num_threads = 1;
  Peaks peaks;
};

/// Programs and steps of a trace, as all rows need them.
class Traced {
 public:
  explicit Traced(const Trace& trace);

  const Trace& trace() const { return trace_; }
  const std::vector<std::unique_ptr<Program>>& programs() const { return programs_; }
  /// nullptr for one that is not known.
  const Program* program_of(const run::ExecutionTrace& execution) const;
  const std::vector<StepTime>& steps() const { return steps_; }
  /// Which of the steps this time lies in, or Event::kNone. The plugin counts steps of devices from
  /// 0 on, whatever their numbers.
  std::int64_t step_at(std::int64_t time_ns) const;
  /// Since the start of the trace.
  std::int64_t since_start(std::int64_t time_ns) const { return time_ns - trace_.engine.start_ns; }

 private:
  void find_steps();

  const Trace& trace_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::map<const run::Executable*, const Program*> by_executable_;
  std::vector<StepTime> steps_;  // by start
};

/// Per site of an execution: its computation, nullptr where nothing is known, and the task of the
/// outermost executable within which it runs.
struct SitePlace {
  const Computation* computation = nullptr;
  std::uint32_t root_task = 0;
  bool is_root = false;
};
std::vector<SitePlace> places_of(const run::ExecutionTrace& execution, const Program& program);

/// `/device:TPU:0`, ...: steps, modules and ops of every device.
std::vector<Plane> device_planes(const Traced& traced);
/// `/host:CPU`: threads, steps and buffers; `/host:metadata`: the programs.
Plane host_plane(const Traced& traced);
Plane metadata_plane(const Traced& traced);
/// An op as a kind of event.
EventKind op_kind(const Program& program, const Op& op);

}  // namespace tessera::profile
