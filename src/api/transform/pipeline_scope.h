// What is known about a pipeline while its function is traced, such as the schedule of its loop.
#pragma once

#include <optional>

#include <tessera/jit.h>
#include <tessera/schedule.h>
#include <tessera/types.h>

#include "ir/ir.h"

namespace tessera::detail {

struct PipelineScope {
  std::int64_t num_groups;
  std::optional<AutoStages> auto_stages = {};  // if set, there are no marks
  // Set by treduce.
  ScheduleTasks tasks = {};
  std::int64_t num_stages = 0;
  std::int64_t num_microbatches = 0;
  std::optional<Span> where = {};
  // Set while the function of a microbatch is traced.
  bool is_inside = false;
  std::int64_t num_marks = 0;
  std::size_t depth = 0;       // the nesting depth of its trace
  std::size_t num_slices = 0;  // the first inputs, which differ between microbatches
  bool is_cut = false;         // whether auto_stages has cut it
};

/// Makes a scope the current one of this thread for the lifetime of this object.
class PipelineTracing {
 public:
  explicit PipelineTracing(PipelineScope* scope);
  ~PipelineTracing();
  PipelineTracing(const PipelineTracing&) = delete;
  PipelineTracing& operator=(const PipelineTracing&) = delete;

 private:
  PipelineScope* previous_;
};

/// nullptr outside of a function that becomes a pipeline.
PipelineScope* current_pipeline();

/// Called with the function that the innermost trace differentiates. If this is the trace of a
/// microbatch and the user asked for auto_stages, returns the function cut into stages; otherwise,
/// returns it unchanged. `arguments`: its inputs, as values of that trace. The first `num_trained`
/// of them are differentiated.
ir::Function cut_derivative(ir::Function forward, const std::vector<ir::ValueId>& arguments,
                            std::size_t num_trained, const Span& where);
/// Cuts the function of a microbatch if the user asked for auto_stages and cut_derivative() has not
/// cut a derivative in it.
void cut_microbatch(PipelineScope& scope, ir::Function& function);

}  // namespace tessera::detail
