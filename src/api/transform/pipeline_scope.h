// What the function of a pipeline says while it is traced: the schedule of its one loop.
#pragma once

#include <optional>

#include <tessera/schedule.h>
#include <tessera/types.h>

namespace tessera::detail {

struct PipelineScope {
  std::int64_t num_groups;
  // of the treduce that was traced
  ScheduleTasks tasks = {};
  std::int64_t num_stages = 0;
  std::int64_t num_microbatches = 0;
  std::optional<Span> where = {};
  // while its function is traced
  bool is_inside = false;
  std::int64_t num_marks = 0;
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

}  // namespace tessera::detail
