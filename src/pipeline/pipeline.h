// Pipelines: a partitioned step with one loop over microbatches -> tasks of groups of devices.
//
//   Pipeline p = pipeline(step, {.tasks = Interleaved1F1B{8, 4}.tasks(4), .num_stages = 8, ...});
//
// The step is partitioned over the mesh of one group; all groups have equal ones. In the result
// every equation is a `task` of a group, a `transfer` between two groups, or a view: the loop is
// unrolled, each microbatch goes through the tasks of the stages, and what stands before and behind
// the loop is done by the groups that need or have the values. The order of equations is one that
// the schedule allows, so the tasks of one group are its list. Bits are those of the loop.
#pragma once

#include <tessera/schedule.h>

#include "ir/ir.h"

namespace tessera::pipeline {

struct PipelineOptions {
  ScheduleTasks tasks;
  std::int64_t num_stages;
  std::int64_t num_microbatches;
  std::vector<int> output_alias;     // per output: the donated input whose buffer it takes, or -1
  std::vector<int> output_replaces;  // per output: the input whose groups hold it as well, or -1
  Span where = {};                   // of the loop, for errors
  bool has_copies = false;           // each group that holds an output returns a copy of its own
};

/// Where inputs and outputs live: groups, sorted.
struct GroupsOfPorts {
  std::vector<std::vector<std::int64_t>> inputs;
  std::vector<std::vector<std::int64_t>> outputs;
};

/// What one of the results of a pipeline's function is.
struct OutputCopy {
  static constexpr std::int64_t kShared = -1;
  std::size_t output;  // of the step
  std::int64_t group;  // that returns it, or kShared: for all groups that hold the output
};

struct Pipeline {
  ir::Function function;
  GroupsOfPorts groups;
  std::vector<OutputCopy> copies;  // per output of `function`, in the order of the step's
  ScheduleCosts costs;             // estimated: seconds of a core, bytes of a device
};

/// A line for each task, transfer and delete of a pipeline's program.
std::string task_text(const ir::Function& program);

/// A forward pass of a microbatch that is to be cut.
struct CutOptions {
  ScheduleTasks tasks = {};
  std::int64_t num_stages = 1;
  std::vector<bool> is_trained = {};  // per input: what depends on it stays where it is written
  std::vector<bool> varies = {};      // per input: another value in each microbatch
  bool is_differentiated = true;      // output 0 is the loss; else there are no backward passes
  double memory_limit = 1e300;        // bytes of a stage
  Span where = {};
};
/// `function` with marks where stages end: behind the equations where the schedule ends first by
/// what they are estimated to cost. All that goes on there is marked, and the loss, or without one
/// all outputs, ends the last stage. Cotangents are added up as they are without marks. Throws
/// UserError for a function that has too few places, and for a limit that no cut meets.
ir::Function with_marks(ir::Function function, const CutOptions& options);

/// Throws UserError for a step without a loop over microbatches and for marks that do not cut it.
Pipeline pipeline(const ir::Function& step, const PipelineOptions& options);

}  // namespace tessera::pipeline
