#include "compile/compile.h"

#include <algorithm>
#include <numeric>

#include <tessera/error.h>

#include "compile/barriers.h"
#include "compile/body_pool.h"
#include "compile/host/kernels/gemm/gemm.h"
#include "compile/host/kernels/reduce_internal.h"
#include "compile/host/lower.h"
#include "compile/host/mpmd/project.h"
#include "compile/host/plan/plan.h"
#include "compile/stored_outputs.h"
#include "compile/widen.h"
#include "ir/builder.h"
#include "ops/control/mpmd.h"
#include "ops/ops.h"
#include "run/transport/group_transport.h"

namespace tessera::compile {

namespace {

void check_dtypes(const ir::Function& function) {
  for (const ir::Equation& equation : function.equations) {
    if (host::computes_f64(equation)) continue;
    for (const ir::ValueId id : equation.operands) {
      if (function.type(id).dtype != DType::f64) continue;
      throw UserError(
          {.what = *equation.op->name + ": the host engine cannot compute this op in f64",
           .where = equation.span,
           .found = to_string(function.type(id)),
           .wanted = "f32, bf16 or f16",
           .cure = "use astype(x, DType::f32), or set_engine(\"reference\")"});
    }
  }
}

/// Gives every output its own memory: no output is an input, except one that keeps its donated
/// buffers, and no two outputs are the same value.
ir::Function with_distinct_outputs(ir::Function result, const CompileOptions& options) {
  result.outputs = stored_outputs(result);
  ir::Builder builder(result);
  std::vector<bool> is_taken(result.values.size(), false);
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    const ir::ValueId id = result.outputs[i];
    const int alias = options.output_alias[i];
    const bool is_input = std::count(result.inputs.begin(), result.inputs.end(), id) != 0;
    const bool keeps_buffers =
        alias >= 0 && result.inputs[static_cast<std::size_t>(alias)] == id && !is_taken[id];
    if (keeps_buffers || (!is_input && !is_taken[id])) {
      is_taken[id] = true;
      continue;
    }
    const ir::ValueId copy =
        builder.emit(ops::reshape_op, {{"shape", result.type(id).shape}}, {id});
    result.values[copy].sharding = result.values[id].sharding;
    result.outputs[i] = copy;
  }
  return result;
}

host::LowerOptions lower_options(const CompileOptions& options, std::vector<int> phases) {
  return {.target = options.target,
          .phases = std::move(phases),
          .output_alias = options.output_alias,
          .dot_unit = options.dot_unit,
          .bodies = options.bodies};
}

run::Executable compile_phased(Phased phased, const CompileOptions& options) {
  run::Executable executable =
      host::plan(host::lower(phased.function, lower_options(options, phased.phases)), options);
  executable.source = std::make_shared<const ir::Function>(std::move(phased.function));
  return executable;
}

/// The transport between the processes that together hold one copy of the values on the mesh;
/// nullptr if these are all processes.
std::shared_ptr<run::Transport> own_group(const Mesh& mesh, const run::World& world) {
  const int count = world.processes_of(mesh);
  if (world.transport == nullptr || mesh.axes().empty() || count == world.size()) return nullptr;
  return std::make_shared<run::GroupTransport>(*world.transport, world.rank() / count * count,
                                               count);
}

/// A function of several groups of devices. Nothing is fused, so that tasks keep their order.
run::Executable compile_groups(ir::Function function, ops::Groups groups,
                               const CompileOptions& options) {
  std::vector<int> phases(function.equations.size());
  std::iota(phases.begin(), phases.end(), 0);
  host::LowerOptions lowering = lower_options(options, {});
  lowering.groups = std::move(groups);
  std::shared_ptr<run::Transport> own;
  const run::World& world = options.target.world;
  if (world.transport != nullptr) {
    require(world.num_groups >= lowering.groups.count, "each group has processes");
    const int size = world.processes_per_group();
    const int group = world.group();
    own = std::make_shared<run::GroupTransport>(*world.transport, group * size, size);
    lowering.target.world = {.transport = own.get()};
    lowering.between = {.transport = world.transport, .group = group};
    host::Projection here = host::project(function, phases, lowering.groups, group);
    function = std::move(here.function);
    phases = std::move(here.phases);
    lowering.groups = std::move(here.groups);
    lowering.is_here = std::move(here.is_here);
  }
  lowering.phases = std::move(phases);
  run::Executable executable = host::plan(host::lower(function, lowering), options);
  executable.transport = std::move(own);
  executable.source = std::make_shared<const ir::Function>(std::move(function));
  return executable;
}

}  // namespace

std::shared_ptr<const run::Executable> compile(const ir::Function& function,
                                               const CompileOptions& options) {
  require(options.is_donated.size() == function.inputs.size() &&
              options.output_alias.size() == function.outputs.size(),
          "compile options have one entry per input and output");
  check_dtypes(function);
  Phased phased = without_barriers(with_wide_operands(function, options.dot_unit));
  phased.function = with_distinct_outputs(std::move(phased.function), options);
  phased.phases.resize(phased.function.equations.size(),
                       phased.phases.empty() ? 0 : phased.phases.back());
  BodyPool pool;
  CompileOptions with_pool = options;
  if (options.bodies == nullptr) with_pool.bodies = &pool;
  const ops::Groups groups = ops::groups_of(phased.function);
  require(groups.count == 0 || options.bodies == nullptr, "tasks are not nested");
  if (groups.count > 0) {
    run::Executable executable = compile_groups(std::move(phased.function), groups, with_pool);
    executable.num_bodies = pool.size();
    return std::make_shared<const run::Executable>(std::move(executable));
  }
  const auto own = own_group(phased.function.mesh, options.target.world);
  if (own != nullptr) with_pool.target.world = {.transport = own.get()};
  run::Executable executable = compile_phased(std::move(phased), with_pool);
  executable.num_bodies = pool.size();
  executable.transport = own;
  return std::make_shared<const run::Executable>(std::move(executable));
}

std::string_view instruction_set() { return kernels::instruction_set(); }

std::vector<DotUnit> dot_units() {
  std::vector<DotUnit> units;
  std::copy_if(std::begin(kDotUnits), std::end(kDotUnits), std::back_inserter(units),
               kernels::has_dot_unit);
  std::stable_partition(units.begin(), units.end(), kernels::is_slow_dot_unit);
  return units;
}

// Does not build the list of units, because every call asks for the best one.
DotUnit best_dot_unit() {
  return *std::find_if(std::rbegin(kDotUnits), std::rend(kDotUnits), [](DotUnit unit) {
    return kernels::has_dot_unit(unit) && !kernels::is_slow_dot_unit(unit);
  });
}

}  // namespace tessera::compile
