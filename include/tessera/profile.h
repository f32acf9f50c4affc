// Where the time and the memory of a run went.
//
//   profile::start_trace("profiles");
//   for (int i = 0; i < 5; ++i) {
//     const profile::Step mark(i);
//     std::tie(state, loss) = step(std::move(state), batch);
//     loss.item<float>();
//   }
//   profile::stop_trace();        // tensorboard --logdir profiles, tab Profile
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include <tessera/types.h>

namespace tessera {

/// Where the time of the engine went: the tasks of one fused region or kernel.
struct RegionTime {
  std::string name;        // its first ops
  Span where;              // of the first one
  std::int64_t count = 0;  // executions
  double seconds = 0;      // of all threads together
  std::int64_t flops = 0;  // of matrix products; 0 elsewhere
  std::int64_t bytes = 0;  // of the arrays that it read and wrote
};

/// Times every region from now on.
void start_profile();
/// What was timed since, the longest first.
std::vector<RegionTime> stop_profile();

namespace profile {

/// Records from now on what every device and thread computes, and all buffers. Times each part of
/// each op with two looks at the clock. With one process per device all of them call it, and each
/// writes a file. UserError when a trace is being recorded already; RuntimeFault when `folder` can
/// not be made or written.
void start_trace(const std::string& folder,
                 std::source_location where = std::source_location::current());
/// Writes what was recorded to `folder`/plugins/profile/RUN: HOST.xplane.pb for TensorBoard's
/// profile plugin, and HOST.trace.json.gz for Perfetto and chrome://tracing. RUN is the time at
/// which the trace began. Returns the path of the former. UserError when nothing is being recorded;
/// RuntimeFault when a file can not be written, and then there is none.
std::string stop_trace(std::source_location where = std::source_location::current());

/// A step of training, from the construction to the destruction: what runs meanwhile belongs to it
/// in the profile. Costs nothing when no trace is recorded. Without any, each execution of the
/// jitted function that ran longest is a step.
class Step {
 public:
  explicit Step(std::int64_t number);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

 private:
  std::int64_t number_;
  std::int64_t start_ns_;  // negative: not recorded
};

}  // namespace profile
}  // namespace tessera
