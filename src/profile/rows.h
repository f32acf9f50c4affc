// Turns the engine's recording into the rows of a profile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profile/machine.h"
#include "profile/program.h"
#include "profile/space.h"
#include "run/devices/backend.h"
#include "run/recorder.h"

namespace tessera::profile {

/// A training step. Times are those of the engine's clock.
struct StepTime {
  std::int64_t number;
  std::int64_t start_ns;
  std::int64_t end_ns;
};

struct Trace {
  run::EngineTrace engine;
  std::vector<TracedProgram> programs;  // in the order of their first execution
  std::vector<StepTime> steps;
  int rank = -1;  // the device of this process; -1 if one process computes for all devices
  int num_threads = 1;
  Peaks peaks;
  /// The trace of the accelerator that ran the programs, if there is one.
  std::optional<run::DeviceTrace> accelerator = std::nullopt;
};

/// The programs and steps of a trace, which all rows need.
class Traced {
 public:
  explicit Traced(const Trace& trace);

  const Trace& trace() const { return trace_; }
  const std::vector<std::unique_ptr<Program>>& programs() const { return programs_; }
  /// nullptr if the program is not known.
  const Program* program_of(const run::ExecutionTrace& execution) const;
  const std::vector<StepTime>& steps() const { return steps_; }
  /// The index of the step that contains this time, or Event::kNone. This is not the number of the
  /// step: the plugin counts the steps of a device from 0.
  std::int64_t step_at(std::int64_t time_ns) const;
  /// Nanoseconds since the start of the trace.
  std::int64_t since_start(std::int64_t time_ns) const { return time_ns - trace_.engine.start_ns; }

 private:
  void find_steps();
  void add_executions();
  void add_calls_of_accelerator();

  const Trace& trace_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::map<const run::Executable*, const Program*> by_executable_;
  std::vector<StepTime> steps_;  // sorted by start
};

/// The computation that a site of an execution runs (nullptr if it is not known), and the task of
/// the outermost executable that contains the site.
struct SitePlace {
  const Computation* computation = nullptr;
  std::uint32_t root_task = 0;
  bool is_root = false;
};
/// One entry per site.
std::vector<SitePlace> places_of(const run::ExecutionTrace& execution, const Program& program);

/// `/device:TPU:0`, ...: the steps, modules, ops and transfers of every device.
std::vector<Plane> device_planes(const Traced& traced);
/// The same planes for the devices of an accelerator: the programs as the host sees them begin and
/// end.
std::vector<Plane> accelerator_planes(const Traced& traced);
/// The rows of the calls of the accelerator, one for each thread that makes them.
void add_calls(const Traced& traced, Plane& host);
/// Names in the plane of the host.
inline constexpr std::string_view kHostPlane = "/host:CPU";
inline constexpr std::string_view kCallerLine = "main thread";
inline constexpr std::string_view kStepKind = "train";

/// `/host:CPU`: threads, steps and buffers; `/host:metadata`: the programs.
Plane host_plane(const Traced& traced);
Plane metadata_plane(const Traced& traced);
/// The kind that all events of an op share.
EventKind op_kind(const Program& program, const Op& op);

}  // namespace tessera::profile
