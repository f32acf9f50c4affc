// Traces of a run: where its time and its memory went.
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

/// The time of one fused region or kernel.
struct RegionTime {
  std::string name;        // the names of its first ops
  Span where;              // of the first one
  std::int64_t count = 0;  // executions
  double seconds = 0;      // summed over threads
  /// The part of `seconds` that it exchanged data with other processes. Threads go on computing
  /// meanwhile.
  double communication_seconds = 0;
  std::int64_t flops = 0;  // of matrix products; 0 elsewhere
  std::int64_t bytes = 0;  // of the arrays that it reads and writes
};

/// Times every region from now on.
void start_profile();
/// The regions timed since then, the longest first.
std::vector<RegionTime> stop_profile();

namespace profile {

/// Starts to record what every device and thread computes, and all buffers. The clock is read twice
/// for each part of each op. With one process per device all of them call it, and each writes a
/// file. Throws UserError if a trace is already being recorded, and RuntimeFault if `folder` cannot
/// be created or written.
void start_trace(const std::string& folder,
                 std::source_location where = std::source_location::current());
/// Writes the recording to `folder`/plugins/profile/RUN: HOST.xplane.pb for TensorBoard's profile
/// plugin, and HOST.trace.json.gz for Perfetto and chrome://tracing. RUN is the time at which the
/// trace began. Returns the path of the .xplane.pb file. Throws UserError if nothing is being
/// recorded, and RuntimeFault if a file cannot be written; then there is none.
std::string stop_trace(std::source_location where = std::source_location::current());

/// A training step in the profile: what runs between construction and destruction belongs to it.
/// Costs nothing if no trace is being recorded. Without any Step, each execution of the jitted
/// function that ran longest is a step.
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
