// Pipelines: a partitioned step with one loop over microbatches -> tasks of groups of devices.
//
//   Pipeline p = pipeline(step, {.tasks = Interleaved1F1B{8, 4}.tasks(4), .num_stages = 8, ...});
//
// The step is partitioned over the mesh of one group; all groups have equal meshes. In the result
// every equation is a `task` of a group, a `transfer` between two groups, or a view. The loop is
// unrolled: each microbatch goes through the tasks of the stages. Equations before the loop run in
// the groups that need their results; equations after it run in the groups that have their
// operands. The equations are in an order that the schedule allows, so the tasks of one group are
// in the order of its list. The results have the same bits as the loop.
#pragma once

#include <tessera/schedule.h>

#include "ir/builder.h"
#include "ir/ir.h"

namespace tessera::pipeline {

struct PipelineOptions {
  ScheduleTasks tasks;
  std::int64_t num_stages;
  std::int64_t num_microbatches;
  std::vector<int> output_alias;     // per output: the donated input whose buffer it takes, or -1
  std::vector<int> output_replaces;  // per output: the input whose groups also hold it, or -1
  Span where = {};                   // of the loop, for errors
  bool has_copies = false;           // each group that holds an output returns its own copy
};

/// Where inputs and outputs live: groups, sorted.
struct GroupsOfPorts {
  std::vector<std::vector<std::int64_t>> inputs;
  std::vector<std::vector<std::int64_t>> outputs;
};

/// Describes one result of the function of a pipeline.
struct OutputCopy {
  static constexpr std::int64_t kShared = -1;
  std::size_t output;  // of the step
  std::int64_t group;  // the group that returns it, or kShared: for all that hold it
};

struct Pipeline {
  ir::Function function;
  GroupsOfPorts groups;
  std::vector<OutputCopy> copies;  // per output of `function`, in the order of the step's outputs
  ScheduleCosts costs;             // estimated: seconds of one core, bytes of one device
};

/// A line for each task, transfer and delete of a pipeline's program.
std::string task_text(const ir::Function& program);

/// How the results of all microbatches are joined.
struct Joined {
  enum class How : std::uint8_t { sum, max, stack };
  How how = How::sum;
  std::int64_t axis = 0;  // of a stack: its new dimension
};
/// Appends the loop that pipeline() cuts. `microbatch` maps a slice of each of `batches`, along
/// their first dimensions, and the `captured` values to its outputs; `joined` has an entry per
/// output. Sums start at zero and are in the order of the microbatches. Where a cotangent is the
/// sum over the uses of a value, the cotangents of each use are summed over the microbatches first:
/// the uses may be in different stages.
std::vector<ir::ValueId> loop_over_microbatches(ir::Builder& b, const ir::Function& microbatch,
                                                const std::vector<Joined>& joined,
                                                const std::vector<ir::ValueId>& batches,
                                                const std::vector<ir::ValueId>& captured);

/// How to cut the forward pass of a microbatch.
struct CutOptions {
  ScheduleTasks tasks = {};
  std::int64_t num_stages = 1;
  std::vector<bool> is_trained = {};  // per input: a weight; values that depend on it are not moved
  std::vector<bool> varies = {};      // per input: differs between microbatches
  bool is_differentiated = true;      // output 0 is the loss; otherwise no backward passes
  double memory_limit = 1e300;        // the most bytes of a stage
  Span where = {};
};
/// Returns `function` with marks where stages end. The cuts are chosen for a short makespan of the
/// schedule, with estimated costs. All values that cross a cut are marked there. The last stage
/// ends with the loss or, without differentiation, with all outputs. Marks do not change the order
/// in which cotangents are added. Throws UserError if there are too few possible cuts, if a loop
/// does most of the work, or if no cut meets the memory limit.
ir::Function with_marks(ir::Function function, const CutOptions& options);

/// Throws UserError if the step has no loop over microbatches, if the marks do not cut it into all
/// stages, or if the schedule does not run the microbatches of a stage in order.
Pipeline pipeline(const ir::Function& step, const PipelineOptions& options);

}  // namespace tessera::pipeline
