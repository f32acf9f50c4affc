// From a traced function to results: simplify, partition, compile, run.
#include "api/program.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <numeric>

#include <tessera/engine.h>
#include <tessera/error.h>

#include "api/call/device_program.h"
#include "api/call/donation.h"
#include "compile/compile.h"
#include "compile/reference/finite.h"
#include "compile/reference/runnable.h"
#include "ir/effects.h"
#include "ir/text.h"
#include "ops/control/control.h"
#include "partition/partition.h"
#include "run/engine.h"
#include "run/machine/memory.h"
#include "run/threads/within_task.h"
#include "run/transport/launched.h"
#include "run/transport/notes.h"
#include "run/transport/processes.h"
#include "run/transport/transport.h"

namespace tessera::detail {

namespace {

/// Adds the time until the end of the scope to `seconds`.
class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<double>& seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    seconds_ = seconds_ + passed.count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::atomic<double>& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Removes the items with `keep[i]` false.
template <typename T>
void drop(std::vector<T>& items, const std::vector<bool>& keep) {
  std::vector<T> kept;
  for (std::size_t i = 0; i < keep.size(); ++i) {
    if (keep[i]) kept.push_back(items[i]);
  }
  items = std::move(kept);
}

void drop_unused_captures(Program& program) {
  ir::Function& function = program.traced;
  std::vector<bool> is_used(function.values.size(), false);
  for (const ir::Equation& equation : function.equations) {
    for (ir::ValueId id : equation.operands) is_used[id] = true;
  }
  for (ir::ValueId id : function.outputs) is_used[id] = true;
  const std::size_t num_arguments = function.inputs.size() - program.captured.size();
  std::vector<bool> keep(function.inputs.size(), true);
  std::vector<bool> keep_captured;
  for (std::size_t i = num_arguments; i < function.inputs.size(); ++i) {
    keep[i] = is_used[function.inputs[i]];
    keep_captured.push_back(keep[i]);
  }
  drop(function.inputs, keep);
  drop(program.inputs, keep);
  drop(program.input_infos, keep);
  drop(program.is_storage, keep);
  drop(program.is_donated, keep);
  drop(program.captured, keep_captured);
}

void forward_inputs(Program& program) {
  ir::Function& function = program.traced;
  program.all_outputs = function.outputs;
  program.result_infos = program.output_infos;
  program.result_groups = program.asked_groups;
  std::vector<bool> is_computed;
  for (std::size_t i = 0; i < function.outputs.size(); ++i) {
    const auto place =
        std::find(function.inputs.begin(), function.inputs.end(), function.outputs[i]);
    const auto input = static_cast<std::size_t>(place - function.inputs.begin());
    const std::optional<Sharding>& asked = program.asked_outputs[i];
    const bool is_forwarded =
        place != function.inputs.end() && (!asked || *asked == program.inputs[input]->sharding);
    program.forwarded.push_back(is_forwarded ? static_cast<int>(input) : -1);
    is_computed.push_back(!is_forwarded);
  }
  drop(function.outputs, is_computed);
  drop(program.asked_outputs, is_computed);
  drop(program.asked_groups, is_computed);
  drop(program.output_infos, is_computed);
  drop(program.output_replaces, is_computed);
}

partition::PartitionOptions partition_options(const Program& program) {
  partition::PartitionOptions options;
  for (const PlacementPtr& input : program.inputs) options.inputs.push_back(input->sharding);
  options.is_storage = program.is_storage;
  options.outputs = program.asked_outputs;
  options.passes = program.passes;
  // The next value of a parameter has the sharding of the parameter.
  for (std::size_t i = 0; i < program.output_replaces.size(); ++i) {
    const int input = program.output_replaces[i];
    const bool is_parameter =
        input >= 0 && program.output_infos[i] != nullptr &&
        program.output_infos[i] == program.input_infos[static_cast<std::size_t>(input)];
    options.output_follows.push_back(is_parameter ? input : -1);
  }
  return options;
}

/// Sets the placements and aliases of outputs, which are known once the program is partitioned.
void place_outputs(Program& program, const ir::Function& split) {
  program.outputs.clear();
  for (ir::ValueId id : split.outputs) {
    const ir::Value& output = split.values[id];
    program.outputs.push_back(placement_of(output.type, split.mesh, output.sharding.value()));
  }
  program.output_alias = aliases_of(program);
}

pipeline::PipelineOptions pipeline_options(const Program& program) {
  pipeline::PipelineOptions how = *program.pipeline;
  how.output_alias = program.output_alias;
  how.output_replaces = program.output_replaces;
  how.has_copies = run::transport() != nullptr;
  return how;
}

ir::Function cut_into_tasks(Program& program, const ir::Function& split) {
  const pipeline::PipelineOptions how = pipeline_options(program);
  pipeline::Pipeline made = pipeline::pipeline(split, how);
  program.groups = std::move(made.groups);
  program.copies = std::move(made.copies);
  program.stage_costs = std::move(made.costs);
  return std::move(made.function);
}

/// With several processes, each computes only the outputs that its group is to hold.
ir::Function with_own_outputs(Program& program, ir::Function split) {
  const auto is_asked = [](const HolderGroups& groups) { return groups != nullptr; };
  program.has_own_outputs =
      run::transport() != nullptr && program.engine.kind != EngineKind::reference &&
      std::any_of(program.asked_groups.begin(), program.asked_groups.end(), is_asked);
  std::vector<bool> is_kept;
  for (std::size_t i = 0; i < split.outputs.size(); ++i) {
    is_kept.push_back(!program.has_own_outputs || is_held_here(program.asked_groups[i]));
    if (is_kept[i]) program.copies.push_back({i, pipeline::OutputCopy::kShared});
  }
  if (!program.has_own_outputs) return split;
  drop(split.outputs, is_kept);
  return ir::without_dead_code(std::move(split));
}

void partition(Program& program) {
  const Stopwatch stopwatch(program.seconds);
  if (program.pipeline) refuse_effects(program.traced);
  const partition::PartitionOptions options = partition_options(program);
  partition::check_options(program.traced, options);
  ir::Function split =
      ir::run_passes(partition::split_passes(options), program.traced, program.passes);
  place_outputs(program, split);
  split = program.pipeline ? cut_into_tasks(program, split)
                           : with_own_outputs(program, std::move(split));
  // Collectives are combined within tasks, so this comes after the cut into tasks.
  program.partitioned =
      ir::run_passes(partition::combine_passes(), std::move(split), program.passes);
}

bool is_own(const pipeline::OutputCopy& copy) {
  return copy.group == pipeline::OutputCopy::kShared || run::transport() == nullptr ||
         copy.group == run::world().group();
}

/// Per output of the executable: the input whose buffer it takes in this process, or -1.
std::vector<int> own_aliases(const Program& program) {
  std::vector<int> aliases;
  for (const pipeline::OutputCopy& copy : program.copies) {
    aliases.push_back(is_own(copy) ? program.output_alias[copy.output] : -1);
  }
  return aliases;
}

std::shared_ptr<const run::Runnable> runnable_of_engine(Program& program) {
  switch (program.engine.kind) {
    case EngineKind::reference:
      return std::make_shared<compile::ReferenceRunnable>(program.traced, program.inputs,
                                                          program.outputs, program.dot_unit);
    case EngineKind::pjrt:
      return compile_for_backend(program);
    case EngineKind::host:
      break;
  }
  program.executable =
      compile::compile(ir::run_passes(compile::passes(), program.partitioned, program.passes),
                       {.is_donated = program.is_donated,
                        .output_alias = own_aliases(program),
                        .target = program.target,
                        .dot_unit = program.dot_unit});
  return std::make_shared<run::HostRunnable>(program.executable);
}

std::shared_ptr<const run::Runnable> make_runnable(Program& program) {
  std::shared_ptr<const run::Runnable> runnable = runnable_of_engine(program);
  if (!program.check_finite) return runnable;
  const bool is_unnamed = program.name == "jit";
  compile::FiniteRunnable::Names names{
      .program = is_unnamed ? program.name : fmt::format("jit({})", program.name),
      .inputs = *program.paths,
      .outputs = {}};
  names.inputs.resize(program.inputs.size(), "that was captured:");
  // All devices are in this process, so that each output is given once.
  for (std::size_t i = 0; i < program.forwarded.size(); ++i) {
    if (program.forwarded[i] < 0) names.outputs.push_back(program.result_paths[i]);
  }
  refuse_to_repeat(program.traced, names.program);
  return std::make_shared<compile::FiniteRunnable>(
      std::move(runnable), ir::without_effects(program.traced), program.inputs, program.outputs,
      program.dot_unit, std::move(names));
}

}  // namespace

ir::PassOptions pass_options(const PassSettings& settings, const std::string& subject) {
  std::vector<ir::Pass> passes = ops::simplify_passes();
  for (ir::Pass& pass : partition::passes({})) passes.push_back(std::move(pass));
  for (ir::Pass& pass : compile::passes()) passes.push_back(std::move(pass));
  ir::check_disabled(settings.disabled, passes, subject);
  ir::PassOptions options{.disabled = settings.disabled, .verify = settings.verify, .observe = {}};
  if (settings.observe) {
    options.observe = [observe = settings.observe](const ir::PassEvent& event) {
      observe(PassReport(event));
    };
  }
  return options;
}

void simplify(Program& program) {
  program.traced = ir::run_passes(ops::simplify_passes(), program.traced, program.passes);
  drop_unused_captures(program);
  // Remove the values of the unused captures as well.
  program.traced = ir::without_dead_code(std::move(program.traced));
  forward_inputs(program);
}

void lower(Program& program) {
  program.partition_once.call([&] { partition(program); });
}

void compile(Program& program) {
  lower(program);
  if (program.traced.outputs.empty() && !ir::Effects().has(program.traced)) return;
  program.compile_once.call([&] {
    const Stopwatch stopwatch(program.seconds);
    program.runnable = make_runnable(program);
  });
}

namespace {

/// The transport of a program that is compiled to be looked at.
class NoTransport final : public run::Transport {
 public:
  NoTransport(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void begin(const run::CollectiveLabel& /*label*/) override {}
  void exchange(std::span<const Send> /*sends*/, std::span<const Receive> /*receives*/) override {
    require(false, "a program that is only looked at does not run");
  }
  void give_up(std::string_view /*why*/) noexcept override {}
  std::int64_t received_bytes() const override { return 0; }
  std::int64_t message_bytes() const override { return std::int64_t{1} << 40; }

 private:
  int rank_;
  int size_;
};

}  // namespace

std::vector<std::shared_ptr<const run::Executable>> compile_for_devices(Program& program) {
  lower(program);
  ir::Function function = program.partitioned;
  std::vector<pipeline::OutputCopy> copies = program.copies;
  std::int64_t num_groups = 1;
  if (program.pipeline) {
    const partition::PartitionOptions options = partition_options(program);
    pipeline::PipelineOptions how = pipeline_options(program);
    how.has_copies = true;
    pipeline::Pipeline made = pipeline::pipeline(
        ir::run_passes(partition::split_passes(options), program.traced, program.passes), how);
    function =
        ir::run_passes(partition::combine_passes(), std::move(made.function), program.passes);
    copies = std::move(made.copies);
    num_groups = static_cast<std::int64_t>(how.tasks.size());
  }
  function = ir::run_passes(compile::passes(), std::move(function), program.passes);
  std::vector<std::shared_ptr<const run::Executable>> executables;
  const std::int64_t devices = std::max<std::int64_t>(1, function.mesh.num_devices());
  for (std::int64_t group = 0; group < num_groups; ++group) {
    NoTransport transport(static_cast<int>(group * devices + function.mesh.device_ids().back()),
                          static_cast<int>(num_groups * devices));
    std::vector<int> aliases;
    for (const pipeline::OutputCopy& copy : copies) {
      const bool is_own = copy.group == pipeline::OutputCopy::kShared || copy.group == group;
      aliases.push_back(is_own ? program.output_alias[copy.output] : -1);
    }
    executables.push_back(
        compile::compile(function, {.is_donated = program.is_donated,
                                    .output_alias = std::move(aliases),
                                    .target = {.world = {.transport = &transport,
                                                         .num_groups = static_cast<int>(num_groups),
                                                         .devices_per_group = devices},
                                               .runs = false},
                                    .dot_unit = program.dot_unit}));
  }
  return executables;
}

const std::vector<std::int64_t>& groups_of_result(const Program& program, std::size_t number) {
  const int input = program.forwarded[number];
  if (input >= 0) return program.groups.inputs[static_cast<std::size_t>(input)];
  const auto computed =
      std::count(program.forwarded.begin(),
                 program.forwarded.begin() + static_cast<std::ptrdiff_t>(number), -1);
  return program.groups.outputs[static_cast<std::size_t>(computed)];
}

std::optional<std::size_t> own_copy(const Program& program, std::size_t output) {
  for (std::size_t k = 0; k < program.copies.size(); ++k) {
    if (program.copies[k].output == output && is_own(program.copies[k])) return k;
  }
  return std::nullopt;
}

Tiled bring_input(const Program& program, std::size_t input, Tiled x) {
  const std::vector<std::int64_t>& readers = program.groups.inputs[input];
  // An input that no group reads stays where it is.
  if (readers.empty() || (x.groups != nullptr && *x.groups == readers)) return x;
  return bring(std::move(x), std::make_shared<const std::vector<std::int64_t>>(readers),
               "placing an argument", Span());
}

namespace {

HolderGroups all_groups(const Program& program) {
  std::vector<std::int64_t> groups(program.pipeline->tasks.size());
  std::iota(groups.begin(), groups.end(), std::int64_t{0});
  return std::make_shared<const std::vector<std::int64_t>>(std::move(groups));
}

/// Whether the groups compute different parts of the program. The reference engine computes all of
/// it in each process.
bool is_cut(const Program& program) {
  return program.pipeline && program.engine.kind != EngineKind::reference;
}

/// The groups that compute: usually those that hold all inputs.
HolderGroups computing_groups(const Program& program, const std::vector<Tiled>& inputs) {
  const bool is_everywhere =
      program.pipeline || program.has_own_outputs || program.engine.kind == EngineKind::reference;
  return is_everywhere ? nullptr : common_groups(inputs);
}

/// A leaf of the result, sent to the groups that the caller wants for it.
Array result_leaf(const Program& program, std::size_t number, Tiled x) {
  const HolderGroups& asked = program.result_groups[number];
  if (asked != nullptr && (x.groups == nullptr || *x.groups != *asked)) {
    x = bring(std::move(x), asked, "placing a result", Span());
  }
  Array leaf = make_concrete(x.placement, std::move(x.tiles), std::move(x.groups));
  leaf.node()->info = program.result_infos[number];
  return leaf;
}

/// The groups in which a computed leaf of the result lies.
HolderGroups holders_of(const Program& program, std::size_t number, const HolderGroups& computing) {
  if (program.pipeline) {
    return std::make_shared<const std::vector<std::int64_t>>(groups_of_result(program, number));
  }
  return program.has_own_outputs ? program.result_groups[number] : computing;
}

}  // namespace

void drop_unread(const Program& program, std::vector<run::Tiles>& inputs) {
  if (program.executable == nullptr) return;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (program.executable->inputs[i].tile_bytes.empty()) inputs[i].clear();
  }
}

namespace {

/// Runs the program and returns the tiles of all outputs that are computed.
std::vector<run::Tiles> compute(Program& program, std::vector<Tiled> inputs,
                                const HolderGroups& groups, Donation& donation) {
  if (program.runnable == nullptr) {
    donation.give_away();
    return {};
  }
  std::vector<run::Tiles> tiles;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tiled input = std::move(inputs[i]);
    if (!is_cut(program)) input = bring(std::move(input), groups, "an operand", Span());
    tiles.push_back(std::move(input.tiles));
  }
  drop_unread(program, tiles);
  std::vector<run::Tiles> outputs(program.outputs.size());
  if (!is_held_here(groups)) {
    donation.give_away();
    return outputs;
  }
  if (program.executable != nullptr) note_program(program);
  std::vector<run::Tiles> made = donation.run(*program.runnable, std::move(tiles));
  if (program.executable == nullptr) return made;
  for (std::size_t k = 0; k < made.size(); ++k) {
    if (is_own(program.copies[k])) outputs[program.copies[k].output] = std::move(made[k]);
  }
  return outputs;
}

/// Up to this size memory is not checked: asking for the free memory takes longer than writing it.
constexpr std::int64_t kUncheckedBytes = std::int64_t{16} << 20;

std::string size_text(std::int64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  return mebibytes < 1024 ? fmt::format("{:.1f} MiB", mebibytes)
                          : fmt::format("{:.1f} GiB", mebibytes / 1024);
}

/// What the processes of one machine need together.
struct MemoryNeed {
  std::int64_t needed = 0;
  std::int64_t free = 0;
  bool is_of_one_machine = false;  // of several
};

/// That of the machine that lacks most. All processes use what was read before any of them went on,
/// so that all make the same decision.
MemoryNeed largest_need(std::int64_t own, const run::CollectiveLabel& label) {
  const std::vector<std::int64_t> machines = run::all_values(run::machine_id(), label);
  const std::vector<std::int64_t> free = run::all_values(run::machine_memory().free, label);
  const std::vector<std::int64_t> needed = run::all_values(own, label);
  std::map<std::int64_t, MemoryNeed> needs;
  for (std::size_t rank = 0; rank < machines.size(); ++rank) {
    const auto [place, is_new] = needs.try_emplace(machines[rank]);
    if (is_new) place->second.free = free[rank];
    place->second.needed += needed[rank];
  }
  const auto lacks_less = [](const auto& a, const auto& b) {
    return a.second.needed - a.second.free < b.second.needed - b.second.free;
  };
  MemoryNeed largest = std::max_element(needs.begin(), needs.end(), lacks_less)->second;
  largest.is_of_one_machine = needs.size() > 1;
  return largest;
}

[[noreturn]] void refuse(const run::NewMemory& own, const MemoryNeed& need, const Span& where) {
  std::string found =
      fmt::format("{}: temporaries {}, results {}, scratch of threads {}", size_text(need.needed),
                  size_text(own.arena), size_text(own.outputs), size_text(own.scratch));
  if (need.needed != own.total()) {
    found = fmt::format("{} in all processes{}, {} in this one", size_text(need.needed),
                        need.is_of_one_machine ? " of one machine" : "", size_text(own.total()));
  }
  throw UserError(
      {.what = "the program needs more memory than this machine has left",
       .where = where,
       .found = std::move(found),
       .wanted = fmt::format("at most {}, the free memory", size_text(need.free)),
       .cure = "use a smaller batch or a smaller model, or end other programs; to run it anyway, "
               "allow overcommit: --allow-overcommit, or set_overcommit(true)"});
}

/// Waits until all processes know the result. A process that throws ends the communication of the
/// others, so none may throw earlier.
void wait_for_all(const run::CollectiveLabel& label) {
  try {
    run::all_values(0, label);
  } catch (const RuntimeFault&) {
    // Another process has thrown the error already.
    return;
  }
}

/// Ranks that a launcher has started may have other settings or other data in their programs.
void check_alike(const Program& program, const Span& where) {
  if (!run::is_launched()) return;
  const std::string subject = program.name.empty() ? "the program" : "the program " + program.name;
  const ir::Function& compared = program.has_own_outputs ? program.traced : program.partitioned;
  run::agree_on(
      {{"the number of grains", std::to_string(program.partitioned.grains)},
       {"the dot unit", std::string(name(program.dot_unit))},
       {subject, fmt::format("one with hash {:016x}", run::hash_of(ir::print(compared)))}},
      where);
}

}  // namespace

std::unique_lock<std::mutex> check_memory(Program& program, const Span& where) {
  if (program.executable == nullptr || program.is_memory_checked) return {};
  const bool is_shared = run::transport() != nullptr && !program.partitioned.mesh.axes().empty();
  if (is_shared && !program.is_compared) check_alike(program, where);
  program.is_compared = true;
  if (overcommit()) return {};
  std::unique_lock<std::mutex> alone;
  if (!is_shared && !run::WithinTask::is_here() &&
      run::Engine::instance().new_memory(*program.executable).total() > kUncheckedBytes) {
    // Memory counts as free until it is written, so programs run for the first time one by one.
    static std::mutex first_runs;
    alone = std::unique_lock(first_runs);
  }
  const run::NewMemory own = run::Engine::instance().new_memory(*program.executable);
  MemoryNeed need{.needed = own.total()};
  static const run::CollectiveLabel label{
      .kind = "memory check", .op = "start of a program", .span = {}};
  if (is_shared) {
    need = largest_need(need.needed, label);
  } else if (need.needed > kUncheckedBytes) {
    need.free = run::machine_memory().free;
  }
  if (need.needed > std::max(need.free, kUncheckedBytes)) {
    if (is_shared) wait_for_all(label);
    refuse(own, need, where);
  }
  program.is_memory_checked = true;
  return alone;
}

std::vector<Array> execute(Program& program, std::vector<Tiled> inputs, Donation& donation) {
  compile(program);
  const HolderGroups groups = computing_groups(program, inputs);
  if (is_cut(program)) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = bring_input(program, i, std::move(inputs[i]));
    }
  }
  std::vector<Array> outputs(program.forwarded.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (program.forwarded[i] < 0) continue;
    Tiled input = inputs[static_cast<std::size_t>(program.forwarded[i])];
    if (program.pipeline && input.groups == nullptr) input.groups = all_groups(program);
    outputs[i] = result_leaf(program, i, std::move(input));
  }
  std::vector<run::Tiles> computed = compute(program, std::move(inputs), groups, donation);
  std::size_t next = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (program.forwarded[i] >= 0) continue;
    HolderGroups holders = holders_of(program, i, groups);
    run::Tiles tiles = std::move(computed[next]);
    if (!is_held_here(holders)) tiles.clear();
    outputs[i] =
        result_leaf(program, i, {program.outputs[next++], std::move(tiles), std::move(holders)});
  }
  return outputs;
}

std::string inner_path(const std::string& path) {
  const std::size_t slash = path.find('/');
  return slash == std::string::npos ? std::string() : path.substr(slash + 1);
}

std::size_t argument_number(const Walk& arguments, std::size_t leaf) {
  const std::vector<std::size_t>& ends = arguments.item_ends();
  return static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), leaf) - ends.begin());
}

MeshChoice::MeshChoice(Span where) : MeshChoice(current_mesh(), std::move(where)) {}

MeshChoice::MeshChoice(const Mesh& mesh, Span where, std::string subject)
    : mesh_(mesh), subject_(std::move(subject)), where_(std::move(where)) {}

void MeshChoice::add(const Mesh& mesh, const std::string& subject) {
  if (mesh.axes().empty() || mesh == mesh_) return;
  if (mesh_.axes().empty()) {
    mesh_ = mesh;
    subject_ = subject;
    return;
  }
  throw UserError({.what = "the arrays of a call are on different meshes",
                   .where = where_,
                   .found = fmt::format("{} on {}", subject, to_string(mesh)),
                   .wanted = fmt::format("{}, the mesh of {}", to_string(mesh_), subject_),
                   .cure = "move the array with device_put(x, NamedSharding(mesh, P{...})), or "
                           "call the function in a use_mesh scope for the mesh of the array"});
}

}  // namespace tessera::detail
