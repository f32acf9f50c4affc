// treduce: a loop over microbatches, and the pipeline that it may become.
#include <fmt/format.h>

#include <tessera/control.h>
#include <tessera/error.h>
#include <tessera/ops.h>

#include "api/program.h"
#include "api/transform/nested.h"
#include "api/transform/pipeline_scope.h"
#include "ops/control/control.h"
#include "ops/ops.h"
#include "pipeline/pipeline.h"

namespace tessera::detail {

namespace {

using ir::Function;
using ir::ValueId;

thread_local PipelineScope* g_pipeline = nullptr;

// --- the pipeline around it

const ir::Equation* nested_mark(const Function& function) {
  for (const ir::Equation& equation : function.equations) {
    for (const Function* body : ir::bodies_of(equation)) {
      for (const ir::Equation& inner : body->equations) {
        if (inner.op == &ops::stage_end_op) return &inner;
      }
      if (const ir::Equation* found = nested_mark(*body)) return found;
    }
  }
  return nullptr;
}

void check_marks(const PipelineScope& scope, const Function& body, const Span& where) {
  if (const ir::Equation* mark = nested_mark(body)) {
    throw UserError({.what = "mark_stage_end: a stage ends inside a nested function",
                     .where = mark->span,
                     .found = "a mark within scan, while_loop, cond, remat or custom_vjp",
                     .wanted = "marks in the function given to treduce itself",
                     .cure = "call the nested function first, then mark its result"});
  }
  if (scope.num_marks == scope.num_stages) return;
  throw UserError(
      {.what = "treduce: the schedule and the marks disagree on the number of stages",
       .where = where,
       .found = fmt::format("{} mark{}", scope.num_marks, scope.num_marks == 1 ? "" : "s"),
       .wanted = fmt::format("{} for the schedule's {} stages", scope.num_stages, scope.num_stages),
       .cure = "call mark_stage_end at the end of each stage, the last one included, "
               "or give the schedule another num_stages"});
}

/// Checks the schedule and puts its tasks for this number of microbatches into the scope.
void enter(PipelineScope& scope, const Schedule& schedule, std::int64_t length,
           const std::source_location& location) {
  const Span where(location);
  if (scope.where) {
    throw UserError({.what = "treduce: a pipeline can have only one loop, and this is the second",
                     .where = where,
                     .found = "another treduce at " + to_string(*scope.where),
                     .wanted = "one treduce in the function given to mpmd_jit_with_loop",
                     .cure = "put both into one function of a microbatch, or make two steps"});
  }
  if (schedule.mpmd_dim() != scope.num_groups) {
    throw UserError(
        {.what = "treduce: the schedule is for a different number of groups",
         .where = where,
         .found = fmt::format("mpmd_dim = {}", schedule.mpmd_dim()),
         .wanted = fmt::format("{}, the groups of the MpmdMesh", scope.num_groups),
         .cure = fmt::format("write .mpmd_dim = {}, or make another mesh", scope.num_groups)});
  }
  scope.tasks = schedule.tasks(length, location);
  scope.num_stages = schedule.num_stages();
  scope.num_microbatches = length;
  scope.where = where;
}

// --- arguments

/// `leaf kernel` of `0/kernel`; `whole` where the argument is one array.
std::string leaf_name(const std::string& path, const std::string& whole) {
  const std::string inner = inner_path(path);
  return inner.empty() ? whole : "leaf " + inner;
}

/// The types of a microbatch, and how many there are.
std::vector<Type> microbatch_types(const std::vector<Array>& leaves,
                                   const std::vector<std::string>& paths, std::int64_t& length,
                                   const Span& where) {
  std::vector<Type> types;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    Type type = leaves[i].type();
    const std::string name = leaf_name(paths[i], "the array");
    if (type.rank() == 0 || (i > 0 && type.shape[0] != length)) {
      throw UserError({.what = "treduce: " + name + " does not have one slice per microbatch",
                       .where = where,
                       .found = to_string(type),
                       .wanted = i == 0 ? "a leading dimension with one slice per microbatch"
                                        : fmt::format("{} slices, as {} has", length,
                                                      leaf_name(paths[0], "the first array")),
                       .cure = "reshape the batch to {microbatches, rows, ...}, or capture the "
                               "array instead"});
    }
    length = type.shape[0];
    type.shape.erase(type.shape.begin());
    types.push_back(std::move(type));
  }
  if (length > 0) return types;
  throw UserError({.what = "treduce: there are no microbatches",
                   .where = where,
                   .found = leaves.empty() ? "no arrays" : to_string(leaves[0].type()),
                   .wanted = "arrays with at least one microbatch",
                   .cure = "pass arrays whose leading dimension counts microbatches"});
}

// --- results

std::vector<pipeline::Joined> joined_by(const std::vector<ReduceOperation>& operations) {
  using How = pipeline::Joined::How;
  std::vector<pipeline::Joined> joined;
  for (const ReduceOperation& operation : operations) {
    if (const auto* concat = std::get_if<Concat>(&operation)) {
      joined.push_back({.how = How::stack, .axis = concat->axis});
    } else {
      joined.push_back({.how = std::holds_alternative<Max>(operation) ? How::max : How::sum});
    }
  }
  return joined;
}

void check_operations(const std::vector<ReduceOperation>& operations, const Nested& nested,
                      const Span& where) {
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const auto* concat = std::get_if<Concat>(&operations[i]);
    const std::int64_t rank = nested.results[i].rank();
    const bool is_bool = nested.results[i].dtype == DType::boolean;
    if (concat != nullptr ? concat->axis >= 0 && concat->axis <= rank : !is_bool) continue;
    throw UserError({.what = "treduce: the operation cannot be applied to " +
                             leaf_name("/" + nested.result_paths[i], "the result"),
                     .where = where,
                     .found = concat != nullptr ? fmt::format("Concat{{{}}} of {}", concat->axis,
                                                              to_string(nested.results[i]))
                                                : to_string(nested.results[i]),
                     .wanted = concat != nullptr ? fmt::format("axes 0 to {}", rank)
                                                 : "numbers to add or to compare",
                     .cure = concat != nullptr ? "give a position for the new dimension"
                                               : "convert it with astype, or use Concat{}"});
  }
}

/// The function of a microbatch, traced with its marks. The values of the first one can be seen.
Nested trace_microbatch(Body& body, const std::vector<Array>& leaves,
                        const std::vector<Type>& types, const Schedule& schedule,
                        const std::source_location& location) {
  const Span where = trace::call_span(location);
  const std::int64_t length = leaves[0].dim(0);
  Sights sights;
  for (const Array& leaf : leaves) sights.inputs.push_back(slice_of(leaf, 0));
  PipelineScope* scope = current_pipeline();
  if (scope == nullptr) return trace_nested(body, types, where, std::move(sights));
  enter(*scope, schedule, length, location);
  scope->is_inside = true;
  scope->depth = trace::depth() + 1;
  scope->num_slices = types.size();
  Nested nested = trace_nested(body, types, where, std::move(sights));
  scope->is_inside = false;
  cut_microbatch(*scope, nested.function);
  check_marks(*scope, nested.function, where);
  return nested;
}

}  // namespace

PipelineTracing::PipelineTracing(PipelineScope* scope) : previous_(g_pipeline) {
  g_pipeline = scope;
}
PipelineTracing::~PipelineTracing() { g_pipeline = previous_; }
PipelineScope* current_pipeline() { return g_pipeline; }

Outcome treduce(Body& body, const Schedule& schedule, const ReduceOperations& operations,
                const std::source_location& location) {
  const Span where = trace::call_span(location);
  Walk arguments = body.walk_arguments(Walk::Want::paths);
  const std::vector<Array> leaves = leaves_of(arguments, where);
  std::int64_t length = 0;
  const std::vector<Type> types = microbatch_types(leaves, arguments.paths(), length, where);
  std::shared_ptr<void> result;
  std::vector<Array> outputs = recorded(leaves, where, [&] {
    Nested nested = trace_microbatch(body, leaves, types, schedule, location);
    result = nested.result;
    const std::vector<ReduceOperation> list = operations.of(operations.operation, result.get());
    check_operations(list, nested, where);
    const std::vector<ValueId> captured = lift_all(nested.captured, where);
    const std::vector<ValueId> batches = lift_all(leaves, where);
    return as_arrays(pipeline::loop_over_microbatches(builder_at(where), nested.function,
                                                      joined_by(list), batches, captured));
  });
  return {std::move(result), std::move(outputs)};
}

Array microbatch_numbers(std::int64_t length, const std::source_location& where) {
  if (length > 0) return arange(length);
  throw UserError({.what = "treduce_i: there are no microbatches",
                   .where = Span(where),
                   .found = std::to_string(length),
                   .wanted = "a length of at least 1",
                   .cure = "ask for at least one microbatch"});
}

std::int64_t next_stage() {
  PipelineScope* scope = current_pipeline();
  return scope == nullptr || !scope->is_inside ? -1 : scope->num_marks++;
}

Array mark_stage_end(const Array& array, std::int64_t stage, const Span& where) {
  const ValueId id = lift(*trace::innermost(), array, where);
  return as_arrays({ops::stage_end(builder_at(where), id, stage)})[0];
}

}  // namespace tessera::detail
