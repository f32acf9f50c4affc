// What users see of lowered and compiled programs.
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <optional>

#include <tessera/error.h>
#include <tessera/jit.h>

#include "api/apply.h"
#include "api/program.h"
#include "compile/compile.h"
#include "ir/text.h"
#include "ops/control/mpmd.h"
#include "partition/partition.h"
#include "stablehlo/stablehlo.h"

namespace tessera {

LoweredProgram::LoweredProgram(std::shared_ptr<detail::Program> program)
    : program_(std::move(program)) {}

namespace {

/// Paths of the leaves of the arguments, then what the function captured.
std::vector<std::string> input_names(const detail::Program& program, const std::string& prefix) {
  const std::vector<std::string>& paths = *program.paths;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    names.push_back(i < paths.size() ? prefix + paths[i]
                                     : fmt::format("captured {}", i - paths.size()));
  }
  return names;
}

}  // namespace

std::string LoweredProgram::ir() const {
  ir::Function function = program_->traced;
  function.outputs = program_->all_outputs;
  return ir::print(function);
}

std::string LoweredProgram::partitioned_ir() const {
  detail::lower(*program_);
  return ir::print(program_->partitioned);
}

std::string LoweredProgram::stablehlo() const {
  detail::lower(*program_);
  return stablehlo::emit(program_->partitioned, {.donated = program_->is_donated});
}

std::string LoweredProgram::task_ir() const {
  detail::lower(*program_);
  return program_->pipeline ? pipeline::task_text(program_->partitioned) : std::string();
}

ScheduleCosts LoweredProgram::stage_costs() const {
  detail::lower(*program_);
  return program_->stage_costs;
}

std::string LoweredProgram::explain() const {
  detail::lower(*program_);
  return partition::explain_text(program_->partitioned, input_names(*program_, "argument "));
}

std::vector<PlannedCollective> LoweredProgram::planned_collectives() const {
  detail::lower(*program_);
  std::vector<PlannedCollective> rows;
  for (partition::CollectiveInfo& info :
       partition::explain(program_->partitioned, input_names(*program_, "argument "))) {
    rows.push_back({.kind = std::move(info.kind),
                    .type = std::move(info.type),
                    .count = info.count,
                    .bytes = info.bytes,
                    .wire_bytes = info.wire_bytes,
                    .group_size = info.group_size,
                    .where = std::move(info.span),
                    .because = std::move(info.because),
                    .cure = std::move(info.cure)});
  }
  return rows;
}

void assert_no_collectives(const LoweredProgram& program, const std::vector<std::string>& kinds,
                           std::source_location where) {
  const std::vector<std::string> all = partition::collective_kinds();
  const auto is_in = [](const std::string& kind, const std::vector<std::string>& list) {
    return std::find(list.begin(), list.end(), kind) != list.end();
  };
  for (const std::string& kind : kinds) {
    if (is_in(kind, all)) continue;
    throw UserError({.what = "assert_no_collectives: unknown collective",
                     .where = trace::call_span(where),
                     .found = kind,
                     .wanted = fmt::format("{}", fmt::join(all, ", ")),
                     .cure = "write for example {\"all_gather\"}, or {} for all kinds"});
  }
  for (const PlannedCollective& row : program.planned_collectives()) {
    if (!kinds.empty() && !is_in(row.kind, kinds)) continue;
    throw UserError({.what = "assert_no_collectives: the program has the collective " + row.kind,
                     .where = row.where.file.empty() ? trace::call_span(where) : row.where,
                     .found = fmt::format("{} of {}, {} bytes received per device: {}", row.kind,
                                          to_string(row.type), row.wire_bytes, row.because),
                     .wanted = kinds.empty() ? std::string("no collectives")
                                             : fmt::format("no {}", fmt::join(kinds, ", no ")),
                     .cure = row.cure.empty() ? "change the shardings of the arrays named above"
                                              : "avoid it by " + row.cure});
  }
}

namespace {

/// Adds the transfers between groups of devices.
void add_transfers(const ir::Function& partitioned, std::map<std::string, CollectiveUse>& uses) {
  for (const ir::Equation& equation : partitioned.equations) {
    if (!ops::is_transfer(equation)) continue;
    const ir::ValueId id = equation.results[0];
    const Type& type = partitioned.type(id);
    const Layout layout(partitioned.mesh, partitioned.sharding(id), type.shape);
    const std::int64_t bytes = size_bytes(Type{type.dtype, layout.max_tile_shape()});
    CollectiveUse& use = uses["transfer"];
    use.kind = "transfer";
    use.count += 1;
    use.bytes += bytes;
    use.wire_bytes += bytes;
  }
}

}  // namespace

std::vector<CollectiveUse> LoweredProgram::collectives() const {
  detail::lower(*program_);
  std::map<std::string, CollectiveUse> uses;
  std::map<std::string, std::size_t> last_equation;
  for (const partition::CollectiveInfo& info : partition::explain(program_->partitioned)) {
    CollectiveUse& use = uses[info.kind];
    use.kind = info.kind;
    // A combined collective moves several arrays at once, but counts once.
    const auto [last, is_first] = last_equation.try_emplace(info.kind, info.equation);
    if (is_first || last->second != info.equation) use.count += info.count;
    last->second = info.equation;
    use.bytes += info.bytes * info.count;
    use.wire_bytes += info.wire_bytes * info.count;
  }
  add_transfers(program_->partitioned, uses);
  std::vector<CollectiveUse> list;
  for (auto& [kind, use] : uses) list.push_back(std::move(use));
  return list;
}

std::string_view PassReport::name() const { return event_.pass.name; }
double PassReport::seconds() const { return event_.seconds; }
std::string PassReport::ir_before() const { return ir::print(event_.before); }
std::string PassReport::ir_after() const { return ir::print(event_.after); }

namespace {

LeafPlacement leaf_placement(std::string path, const detail::Placement& placement) {
  NamedSharding sharding;
  sharding.mesh = placement.mesh;
  sharding.spec = to_spec(placement.mesh, placement.sharding);
  const Layout layout(placement.mesh, placement.sharding, placement.type.shape);
  return {std::move(path), placement.type, std::move(sharding), layout.max_tile_shape()};
}

}  // namespace

std::vector<LeafPlacement> LoweredProgram::arguments() const {
  if (program_->pipeline) detail::lower(*program_);
  std::vector<std::string> names = input_names(*program_, "");
  std::vector<LeafPlacement> list;
  for (std::size_t i = 0; i < program_->inputs.size(); ++i) {
    list.push_back(leaf_placement(std::move(names[i]), *program_->inputs[i]));
    if (program_->pipeline) list.back().sharding.mpmd_idxs = program_->groups.inputs[i];
  }
  return list;
}

std::vector<LeafPlacement> LoweredProgram::results() const {
  detail::lower(*program_);
  std::vector<LeafPlacement> list;
  std::size_t next = 0;
  for (std::size_t i = 0; i < program_->forwarded.size(); ++i) {
    const int input = program_->forwarded[i];
    detail::PlacementPtr placement =
        input >= 0 ? program_->inputs[static_cast<std::size_t>(input)] : program_->outputs[next++];
    list.push_back(leaf_placement(program_->result_paths[i], *placement));
    if (program_->pipeline) list.back().sharding.mpmd_idxs = detail::groups_of_result(*program_, i);
  }
  return list;
}

std::string sharding_table(const std::vector<LeafPlacement>& leaves) {
  std::vector<std::array<std::string, 5>> rows = {
      {"leaf", "type", "spec", "local shape", "bytes per device"}};
  std::int64_t total = 0;
  for (const LeafPlacement& leaf : leaves) {
    const std::int64_t bytes = size_bytes(Type{leaf.type.dtype, leaf.local_shape});
    total += bytes;
    rows.push_back({leaf.path, to_string(leaf.type), to_string(leaf.sharding.spec),
                    to_string(leaf.local_shape), std::to_string(bytes)});
  }
  rows.push_back({"total", "", "", "", std::to_string(total)});
  std::array<std::size_t, 5> widths{};
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& [leaf, type, spec, local, bytes] : rows) {
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:<{}}  {:>{}}\n", leaf, widths[0], type,
                        widths[1], spec, widths[2], local, widths[3], bytes, widths[4]);
  }
  return text;
}

ReshardPlan plan_reshard(const Type& type, const NamedSharding& from, const PartitionSpec& to,
                         std::source_location where) {
  const Mesh& mesh = from.mesh;
  const Span span = trace::call_span(where);
  const partition::ReshardMoves planned =
      partition::plan_moves(mesh, type, to_sharding(mesh, from.spec, type, "plan_reshard", span),
                            to_sharding(mesh, to, type, "plan_reshard", span));
  ReshardPlan plan;
  plan.bound = planned.bound;
  plan.start_cost = planned.start_cost;
  for (const partition::ReshardMove& move : planned.moves) {
    const PartitionSpec moved = to_spec(mesh, {.dims = {move.atoms}, .partial = {}});
    plan.steps.push_back({.kind = move.kind,
                          .axes = moved.entries().at(0).axes,
                          .spec = to_spec(mesh, move.to),
                          .wire_bytes = move.wire_bytes,
                          .group_size = move.group_size});
    plan.wire_bytes += move.wire_bytes;
  }
  return plan;
}

double CompiledProgram::compile_seconds() const { return program_->seconds; }

namespace {

/// In a pipeline no group has all arguments. The parts are those of a device of the group that
/// holds most.
MemoryPlan memory_of_largest_group(const run::Executable& executable) {
  const std::vector<std::int64_t>& peaks = executable.group_peak_bytes;
  const auto largest = std::max_element(peaks.begin(), peaks.end());
  MemoryPlan plan{.peak = *largest, .group_peaks = peaks};
  const std::vector<ir::ValueId>& inputs = executable.source->inputs;
  for (const run::HeldBytes& held : executable.held) {
    if (!held.is_port || held.group != largest - peaks.begin()) continue;
    const bool is_argument = std::find(inputs.begin(), inputs.end(), held.value) != inputs.end();
    (is_argument ? plan.arguments : plan.results) += held.bytes;
  }
  plan.temporaries = plan.peak - plan.arguments - plan.results;
  return plan;
}

}  // namespace

MemoryPlan CompiledProgram::memory() const {
  detail::compile(*program_);
  MemoryPlan plan;
  if (program_->runnable == nullptr) return plan;
  if (const std::optional<run::DeviceMemory> memory = program_->runnable->memory()) {
    plan = {.arguments = memory->arguments,
            .results = memory->outputs,
            .temporaries = memory->temporaries,
            .peak = memory->arguments + memory->outputs + memory->temporaries,
            .group_peaks = memory->group_peaks};
    return plan;
  }
  if (program_->executable == nullptr) return plan;
  auto tile_bytes = [](const detail::Placement& placement) {
    const Layout layout(placement.mesh, placement.sharding, placement.type.shape);
    return size_bytes(Type{placement.type.dtype, layout.max_tile_shape()});
  };
  const run::Executable& executable = *program_->executable;
  if (!executable.group_peak_bytes.empty()) return memory_of_largest_group(executable);
  for (std::size_t i = 0; i < program_->inputs.size(); ++i) {
    if (executable.inputs[i].tile_bytes.empty()) continue;
    plan.arguments += tile_bytes(*program_->inputs[i]);
  }
  for (std::size_t i = 0; i < program_->outputs.size(); ++i) {
    const std::optional<std::size_t> copy = detail::own_copy(*program_, i);
    if (!copy || executable.outputs[*copy].tile_bytes.empty()) continue;
    if (executable.outputs[*copy].alias < 0) plan.results += tile_bytes(*program_->outputs[i]);
  }
  plan.peak = executable.device_peak_bytes;
  plan.temporaries = std::max<std::int64_t>(0, plan.peak - plan.arguments - plan.results);
  return plan;
}

}  // namespace tessera
