// What the function of a pipeline says while it is traced: the schedule of its one loop.
#pragma once

#include <optional>

#include <tessera/jit.h>
#include <tessera/schedule.h>
#include <tessera/types.h>

#include "ir/ir.h"

namespace tessera::detail {

struct PipelineScope {
  std::int64_t num_groups;
  std::optional<AutoStages> auto_stages = {};  // instead of marks
  // of the treduce that was traced
  ScheduleTasks tasks = {};
  std::int64_t num_stages = 0;
  std::int64_t num_microbatches = 0;
  std::optional<Span> where = {};
  // while its function is traced
  bool is_inside = false;
  std::int64_t num_marks = 0;
  std::size_t depth = 0;       // of its trace
  std::size_t num_slices = 0;  // inputs that are those of the microbatch; the others are the same
                               // for all
  bool is_cut = false;         // it was, as auto_stages says
};

/// Makes a scope that of this thread while it lives.
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

/// The function of which the innermost trace takes a derivative, cut into stages where it is that
/// of a microbatch and auto_stages are asked for. Its inputs are `arguments` of that trace, of
/// which the first `num_trained` are differentiated.
ir::Function cut_derivative(ir::Function forward, const std::vector<ir::ValueId>& arguments,
                            std::size_t num_trained, const Span& where);
/// The function of a microbatch, cut if no derivative in it was.
void cut_microbatch(PipelineScope& scope, ir::Function& function);

}  // namespace tessera::detail
