// Stages without marks: the forward pass of a microbatch is cut before it is differentiated.
#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>

#include "api/transform/pipeline_scope.h"
#include "pipeline/pipeline.h"
#include "trace/trace.h"

namespace tessera::detail {

namespace {

/// Per value of the function of a microbatch: whether it differs between microbatches.
std::vector<bool> varying(const ir::Function& function, std::size_t num_slices) {
  std::vector<bool> varies(function.values.size(), false);
  for (std::size_t i = 0; i < num_slices; ++i) varies[function.inputs[i]] = true;
  for (const ir::Equation& equation : function.equations) {
    const bool is_so = std::any_of(equation.operands.begin(), equation.operands.end(),
                                   [&](ir::ValueId id) { return varies[id]; });
    for (ir::ValueId id : equation.results) varies[id] = is_so;
  }
  return varies;
}

void check_unmarked(const PipelineScope& scope) {
  if (scope.num_marks == 0) return;
  throw UserError(
      {.what = "auto_stages: the function already has marks",
       .where = *scope.where,
       .found = fmt::format("{} mark{}", scope.num_marks, scope.num_marks == 1 ? "" : "s"),
       .wanted = "either auto_stages or marks, not both",
       .cure = "remove auto_stages, or the calls of mark_stage_end"});
}

[[noreturn]] void fail_second(const Span& where) {
  throw UserError(
      {.what = "auto_stages: a microbatch has two derivatives, and only one can be cut into stages",
       .where = where,
       .found = "another value_and_grad",
       .wanted = "one value_and_grad in the function given to treduce",
       .cure = "differentiate the sum of the losses, or end the stages with "
               "mark_stage_end"});
}

ir::Function cut(PipelineScope& scope, ir::Function function, pipeline::CutOptions options) {
  options.tasks = scope.tasks;
  options.num_stages = scope.num_stages;
  options.memory_limit = scope.auto_stages->memory_limit;
  options.where = *scope.where;
  ir::Function marked = pipeline::with_marks(std::move(function), options);
  scope.num_marks = scope.num_stages;
  scope.is_cut = true;
  return marked;
}

}  // namespace

ir::Function cut_derivative(ir::Function forward, const std::vector<ir::ValueId>& arguments,
                            std::size_t num_trained, const Span& where) {
  PipelineScope* scope = current_pipeline();
  const bool is_microbatch =
      scope != nullptr && scope->auto_stages && scope->is_inside && trace::depth() == scope->depth;
  if (!is_microbatch) return forward;
  if (scope->is_cut) fail_second(where);
  check_unmarked(*scope);
  const std::vector<bool> varies = varying(trace::innermost()->function(), scope->num_slices);
  pipeline::CutOptions options;
  for (std::size_t i = 0; i < forward.inputs.size(); ++i) {
    options.is_trained.push_back(i < num_trained);
    options.varies.push_back(varies[arguments[i]]);
  }
  return cut(*scope, std::move(forward), std::move(options));
}

void cut_microbatch(PipelineScope& scope, ir::Function& function) {
  if (!scope.auto_stages || scope.is_cut) return;
  check_unmarked(scope);
  pipeline::CutOptions options{.is_differentiated = false};
  for (std::size_t i = 0; i < function.inputs.size(); ++i) {
    options.is_trained.push_back(true);  // no equation may move to another stage
    options.varies.push_back(i < scope.num_slices);
  }
  function = cut(scope, std::move(function), std::move(options));
}

}  // namespace tessera::detail
