// jit: traces and compiles one program per kind of arguments.
#include <algorithm>
#include <chrono>
#include <deque>
#include <fmt/format.h>

#include <tessera/error.h>
#include <tessera/jit.h>
#include <tessera/transform.h>

#include "api/apply.h"
#include "api/call/donation.h"
#include "api/inspect/op_by_op.h"
#include "api/inspect/warnings.h"
#include "api/program.h"
#include "api/trace_record.h"
#include "api/transform/pipeline_scope.h"
#include "base/lru_cache.h"
#include "ops/ops.h"
#include "run/transport/processes.h"

namespace tessera::detail {

bool is_tracing() { return trace::innermost() != nullptr; }

namespace {

using Clock = std::chrono::steady_clock;

/// Everything that a trace depends on, as bytes.
std::string cache_key(const Walk& arguments, const Body& body, const Settings& settings,
                      const Span& where) {
  std::string key = arguments.structure();
  auto append = [&](const auto& value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (const std::type_info* type : body.argument_types()) append(number_of(*type));
  for (std::size_t i = 0; i < arguments.leaves().size(); ++i) {
    const Array& array = *arguments.leaves()[i].array;
    if (array.is_empty()) {
      fail_empty(fmt::format("argument {}", argument_number(arguments, i)), where);
    }
    const NodePtr& node = array.node();
    append_address(key, node->placement);
    if (!node->is_concrete()) key += to_string(node->type);
  }
  key += to_string(current_mesh());
  key += to_string(get_logical_axis_rules());
  append(settings.grains);
  append(settings.numerics);
  append(settings.engine.kind);
  append(settings.engine.backend);
  append(settings.dot_unit);
  append(settings.num_threads);
  append(settings.world.transport);
  append(settings.checks_indices);
  return key;
}

/// One kind of arguments; the program is made by the first call.
struct Entry {
  Once once;
  std::shared_ptr<Program> program;
  std::vector<PlacementPtr> placements;  // in the key, like the next ones
  std::vector<ParamInfoPtr> infos;
};

std::shared_ptr<Entry> make_entry(const Walk& arguments) {
  auto entry = std::make_shared<Entry>();
  for (const Walk::Leaf& leaf : arguments.leaves()) {
    entry->placements.push_back(leaf.array->node()->placement);
    entry->infos.push_back(leaf.info());
  }
  return entry;
}

/// Makes the program of one kind of arguments.
class Tracer {
 public:
  Tracer(const JitOptions& options, const Settings& settings, Body& body, Span where)
      : options_(options),
        settings_(settings),
        body_(body),
        where_(std::move(where)),
        walk_(body.walk_arguments(Walk::Want::paths)),
        paths_(walk_.paths()) {}

  std::shared_ptr<Program> trace(const std::string& structure) {
    const Clock::time_point start = Clock::now();
    check_options();
    check_groups();
    check_processes();
    choose_mesh();
    program_->name = options_.name.empty() ? "jit" : options_.name;
    program_->structure = structure;
    program_->paths = std::make_shared<const std::vector<std::string>>(paths_);
    program_->engine = settings_.engine;
    program_->target = target_of(settings_);
    program_->dot_unit = options_.dot_unit.empty()
                             ? settings_.dot_unit
                             : dot_unit_named(options_.dot_unit, name() + ": dot_unit", where_);
    program_->passes = pass_options(options_.passes, name());
    program_->check_finite = options_.check_finite;
    place_arguments();
    record();
    place_captured();
    ask_outputs();
    if (options_.strict) check_strict();
    program_->output_replaces =
        replaced_arguments(paths_, program_->inputs, result_paths_, types_of_results());
    simplify(*program_);
    program_->seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return program_;
  }

  /// Calls the function as it is, on the mesh and with the shardings of its arguments and results.
  Outcome call_op_by_op() {
    const trace::Depth depth(where_);
    check_options();
    check_groups();
    choose_mesh();
    place_arguments();
    const use_mesh scope(mesh_);
    const std::optional<Context> context = own_context();
    std::optional<use_context> settings;
    if (context) settings.emplace(*context);
    std::vector<Array> leaves;
    for (std::size_t i = 0; i < walk_.leaves().size(); ++i) {
      leaves.push_back(
          with_info(placed(*walk_.leaves()[i].array, program_->inputs[i], "placing an argument"),
                    walk_.leaves()[i].info()));
    }
    Called called = call_as_it_is(body_, leaves, where_);
    check_paths(options_.out_shardings, called.paths, name() + ": out_shardings", where_);
    for (std::size_t i = 0; i < called.leaves.size(); ++i) {
      Array& leaf = called.leaves[i];
      const std::optional<Sharding> asked = asked_sharding(
          options_.out_shardings, called.paths[i], called.infos[i].get(), leaf.type(), mesh_,
          name() + ": out_shardings" + of_path(called.paths[i]), where_);
      if (!asked) continue;
      leaf = with_info(placed(leaf, placement_of(leaf.type(), mesh_, *asked), "placing a result"),
                       called.infos[i]);
    }
    return {std::move(called.result), std::move(called.leaves)};
  }

 private:
  /// ` of params/kernel`; nothing for a result that is one array.
  static std::string of_path(const std::string& path) { return path.empty() ? "" : " of " + path; }
  std::string name() const { return options_.name.empty() ? "jit" : "jit(" + options_.name + ")"; }

  /// A plugin adds in an order of its own, so exact numerics would only move more bytes.
  Numerics numerics() const {
    const bool is_plugin = settings_.engine.kind == EngineKind::pjrt;
    const Numerics asked = options_.numerics.value_or(settings_.numerics);
    const bool is_exact_asked = options_.numerics == Numerics::exact;
    if (is_plugin ? is_exact_asked : asked == Numerics::device) {
      throw UserError(
          {.what = this->name() + ": the engine does not have these numerics",
           .where = where_,
           .found = fmt::format("numerics {} on the engine {}", tessera::name(asked),
                                detail::name(settings_.engine.kind)),
           .wanted = "exact or fast on the engines host and reference, device on a PJRT plugin",
           .cure = "leave out numerics, or choose another engine with set_engine"});
    }
    return is_plugin ? Numerics::device : asked;
  }

  void check_options() const {
    const std::size_t count = walk_.item_ends().size();
    const std::size_t num_shardings = options_.in_shardings.size();
    if (num_shardings != 0 && num_shardings != count) {
      throw UserError({.what = fmt::format("{}: in_shardings has too {} entries", name(),
                                           num_shardings < count ? "few" : "many"),
                       .where = where_,
                       .found = std::to_string(num_shardings),
                       .wanted = fmt::format("{}, one per argument", count),
                       .cure = "give one Shardings per argument; Shardings() leaves the choice "
                               "open. Leave out in_shardings to leave all choices open"});
    }
    for (int number : options_.donate_argnums) {
      if (number >= 0 && static_cast<std::size_t>(number) < count) continue;
      throw UserError({.what = name() + ": donate_argnums names an argument that does not exist",
                       .where = where_,
                       .found = std::to_string(number),
                       .wanted = fmt::format("numbers from 0 to {}", count - 1),
                       .cure = "count arguments from 0"});
    }
  }

  void check_processes() const {
    if (!options_.check_finite || run::transport() == nullptr) return;
    throw UserError({.what = name() + ": check_finite needs all devices in one process",
                     .where = where_,
                     .found = fmt::format("{} processes", run::transport()->size()),
                     .wanted = "one process, which holds the whole arguments",
                     .cure = "run the program without mpirun or --isolated, with the same mesh: it "
                             "computes the same bits"});
  }

  /// With several processes, the run must have some for all groups of the MpmdMesh.
  void check_groups() const {
    if (run::transport() == nullptr || !options_.mpmd_mesh) return;
    const std::int64_t groups = run::world().num_groups;
    if (options_.mpmd_mesh->mpmd_dim() <= groups) return;
    throw UserError({.what = name() + ": the MpmdMesh has more groups than this run",
                     .where = where_,
                     .found = to_string(*options_.mpmd_mesh) +
                              fmt::format(" and groups of the run: {}", groups),
                     .wanted = "a process for each device of each group",
                     .cure = fmt::format("start the processes with num_groups = {}",
                                         options_.mpmd_mesh->mpmd_dim())});
  }

  Array placed(const Array& x, const PlacementPtr& to, const char* op) const {
    const Tiled from = tiles_of(x, where_);
    if (from.placement == to) return x;
    Tiled moved = move_tiles(from, to, op, where_);
    return make_concrete(moved.placement, std::move(moved.tiles), std::move(moved.groups));
  }

  /// A context with the settings of this function, if they are not those of the current one.
  std::optional<Context> own_context() const {
    if (!options_.numerics && options_.dot_unit.empty()) return std::nullopt;
    Context context;
    const use_context scope(context);
    set_numerics(numerics());
    if (!options_.dot_unit.empty()) set_dot_unit(options_.dot_unit);
    return context;
  }

  void choose_mesh() {
    MeshChoice choice = options_.mpmd_mesh ? MeshChoice(options_.mpmd_mesh->group_mesh(), where_,
                                                        "a group of the MpmdMesh")
                                           : MeshChoice(where_);
    for (const Shardings& shardings : options_.in_shardings) add_meshes(choice, shardings);
    add_meshes(choice, options_.out_shardings);
    for (std::size_t i = 0; i < walk_.leaves().size(); ++i) {
      const NodePtr& node = node_of(*walk_.leaves()[i].array, where_);
      if (node->is_concrete()) choice.add(node->placement->mesh, "argument " + paths_[i]);
    }
    mesh_ = choice.mesh();
  }

  static void add_meshes(MeshChoice& choice, const Shardings& shardings) {
    for (const Shardings::Entry& entry : shardings.entries()) {
      choice.add(entry.mesh, "the shardings given to jit");
    }
  }

  bool is_donated(std::size_t argument) const {
    return std::count(options_.donate_argnums.begin(), options_.donate_argnums.end(),
                      static_cast<int>(argument)) != 0;
  }

  void place_arguments() {
    for (std::size_t number = 0; number < options_.in_shardings.size(); ++number) {
      check_argument_paths(number);
    }
    for (std::size_t i = 0; i < walk_.leaves().size(); ++i) {
      const Walk::Leaf& leaf = walk_.leaves()[i];
      const std::size_t argument = argument_number(walk_, i);
      program_->inputs.push_back(place_argument(i, argument));
      program_->input_infos.push_back(leaf.info());
      program_->is_donated.push_back(is_donated(argument));
      program_->is_storage.push_back(leaf.info() != nullptr);
    }
  }

  void check_argument_paths(std::size_t number) const {
    std::vector<std::string> inner;
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      if (argument_number(walk_, i) == number) inner.push_back(inner_path(paths_[i]));
    }
    check_paths(options_.in_shardings[number], inner,
                fmt::format("{}: in_shardings of argument {}", name(), number), where_);
  }

  PlacementPtr place_argument(std::size_t i, std::size_t argument) const {
    const Walk::Leaf& leaf = walk_.leaves()[i];
    const ArrayNode& node = *leaf.array->node();
    const bool is_placed = node.is_concrete() && !node.placement->mesh.axes().empty();
    std::optional<Sharding> asked;
    if (argument < options_.in_shardings.size()) {
      asked =
          asked_sharding(options_.in_shardings[argument], inner_path(paths_[i]), leaf.info().get(),
                         node.type, mesh_, name() + ": in_shardings of " + paths_[i], where_);
    }
    if (!asked) return is_placed ? node.placement : replicated_placement(node.type, mesh_);
    PlacementPtr wanted = placement_of(node.type, mesh_, *asked);
    if (!is_placed || node.placement == wanted) return wanted;
    throw UserError(
        {.what = name() + ": in_shardings differ from the sharding of argument " + paths_[i],
         .where = where_,
         .found = to_string(to_spec(mesh_, node.placement->sharding)),
         .wanted = to_string(to_spec(mesh_, *asked)),
         .cure = "move the array with device_put, or leave out its in_shardings"});
  }

  void record() {
    const use_mesh scope(mesh_);
    auto trace = std::make_shared<trace::Trace>(mesh_, settings_.grains, numerics());
    std::vector<Array> tracers;
    for (const Walk::Leaf& leaf : walk_.leaves()) {
      const NodePtr& node = leaf.array->node();
      if (node->is_traced()) lift(*trace, *leaf.array, where_);  // throws if its trace has ended
      tracers.push_back(make_traced(trace, trace->add_input(node->type)));
      tracers.back().node()->info = leaf.info();
    }
    std::vector<ir::ValueId> outputs;
    std::shared_ptr<void> result;
    std::optional<PipelineScope> scope_of_pipeline;
    if (options_.mpmd_mesh) {
      scope_of_pipeline = {.num_groups = options_.mpmd_mesh->mpmd_dim(),
                           .auto_stages = options_.auto_stages};
    }
    {
      const trace::Tracing tracing(trace, where_);
      const PipelineTracing pipeline(scope_of_pipeline ? &*scope_of_pipeline : nullptr);
      result = body_.call(tracers);
      Walk leaves = body_.walk_result(result.get(), Walk::Want::paths);
      result_paths_ = leaves.paths();
      program_->result_paths = result_paths_;
      std::vector<Array> abstract;
      for (std::size_t i = 0; i < leaves.leaves().size(); ++i) {
        const Walk::Leaf& leaf = leaves.leaves()[i];
        if (leaf.array->is_empty()) fail_empty("the result" + of_path(result_paths_[i]), where_);
        outputs.push_back(lift(*trace, *leaf.array, where_));
        program_->output_infos.push_back(leaf.info());
        abstract.push_back(make_abstract(leaf.array->type()));
      }
      replace_leaves(leaves, abstract);
    }
    program_->result = std::move(result);
    captured_ = trace->captured();
    program_->traced = trace->finish(std::move(outputs));
    if (scope_of_pipeline) take_schedule(std::move(*scope_of_pipeline));
  }

  void take_schedule(PipelineScope scope) {
    program_->pipeline = pipeline::PipelineOptions{.tasks = std::move(scope.tasks),
                                                   .num_stages = scope.num_stages,
                                                   .num_microbatches = scope.num_microbatches,
                                                   .output_alias = {},
                                                   .output_replaces = {},
                                                   .where = scope.where.value_or(where_)};
  }

  /// If nothing else has a mesh, the mesh of a captured array is taken. Nothing that was traced
  /// depends on the mesh in this case.
  void place_captured() {
    MeshChoice choice(mesh_, where_);
    for (const std::shared_ptr<const void>& outer : captured_) {
      Array array(
          std::const_pointer_cast<ArrayNode>(std::static_pointer_cast<const ArrayNode>(outer)));
      choice.add(array.node()->placement->mesh, "captured array " + describe(array));
      program_->captured.push_back(std::move(array));
    }
    if (choice.mesh() != mesh_) {
      mesh_ = choice.mesh();
      program_->traced = ir::with_mesh(std::move(program_->traced), mesh_);
      for (PlacementPtr& input : program_->inputs) {
        input = replicated_placement(input->type, mesh_);
      }
    }
    for (const Array& array : program_->captured) {
      const ArrayNode& node = *array.node();
      const bool is_placed = !node.placement->mesh.axes().empty();
      program_->inputs.push_back(is_placed ? node.placement
                                           : replicated_placement(node.type, mesh_));
      program_->is_donated.push_back(false);
      program_->is_storage.push_back(node.info != nullptr);
      program_->input_infos.push_back(node.info);
    }
  }

  void ask_outputs() {
    check_paths(options_.out_shardings, result_paths_, name() + ": out_shardings", where_);
    for (std::size_t i = 0; i < result_paths_.size(); ++i) {
      const Type& type = program_->traced.type(program_->traced.outputs[i]);
      program_->asked_outputs.push_back(asked_sharding(
          options_.out_shardings, result_paths_[i], program_->output_infos[i].get(), type, mesh_,
          name() + ": out_shardings" + of_path(result_paths_[i]), where_));
      program_->asked_groups.push_back(groups_of_output(result_paths_[i]));
    }
  }

  HolderGroups groups_of_output(const std::string& path) const {
    const Shardings::Entry* entry = options_.out_shardings.find(path);
    if (entry == nullptr || entry->mpmd_idxs.empty()) return nullptr;
    return asked_groups(entry->mpmd_idxs, mesh_, name() + ": out_shardings" + of_path(path),
                        where_);
  }

  /// Checks arguments and requested outputs only: inferred shardings are not the user's mistake.
  void check_strict() const {
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      const Placement& input = *program_->inputs[i];
      check_even(mesh_, input.sharding, input.type, name() + ": argument " + paths_[i], where_);
    }
    for (std::size_t i = 0; i < result_paths_.size(); ++i) {
      if (!program_->asked_outputs[i]) continue;
      check_even(mesh_, *program_->asked_outputs[i],
                 program_->traced.type(program_->traced.outputs[i]),
                 name() + ": out_shardings" + of_path(result_paths_[i]), where_);
    }
    check_constraints(program_->traced);
  }

  void check_constraints(const ir::Function& function) const {
    for (const ir::Equation& equation : function.equations) {
      for (const ir::Function* body : ir::bodies_of(equation)) check_constraints(*body);
      if (equation.op != &ops::sharding_constraint_op) continue;
      check_even(function.mesh, equation.attributes.get<Sharding>("sharding"),
                 function.type(equation.results[0]), name() + ": with_sharding_constraint",
                 equation.span);
    }
  }

  std::vector<Type> types_of_results() const {
    std::vector<Type> types;
    for (ir::ValueId id : program_->traced.outputs) types.push_back(program_->traced.type(id));
    return types;
  }

  const JitOptions& options_;
  Settings settings_;
  Body& body_;
  Span where_;
  Walk walk_;
  std::vector<std::string> paths_;
  Mesh mesh_;
  std::vector<std::string> result_paths_;
  std::vector<std::shared_ptr<const void>> captured_;
  std::shared_ptr<Program> program_ = std::make_shared<Program>();
};

constexpr std::size_t kMostPrograms = 4096;
/// Older traces are not compared with the last one.
constexpr std::size_t kMostRecords = 64;

}  // namespace

struct JitCore::State {
  JitOptions options;
  Span where;
  std::mutex mutex;
  LruCache<std::shared_ptr<Entry>> entries{kMostPrograms};
  std::shared_ptr<Program> last;
  std::deque<TraceRecord> records;  // of the last traces
  int num_traces = 0;
  bool has_warned = false;  // of a number that changes

  std::string name() const { return options.name.empty() ? "jit" : "jit(" + options.name + ")"; }

  /// Throws UserError if one more trace would be more than the options allow.
  void check_num_traces(const TraceRecord& next, const Span& call) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (options.max_traces <= 0 || num_traces < options.max_traces) return;
    std::deque<TraceRecord> all = records;
    all.push_back(next);
    std::string reasons = why_last(all);
    if (reasons.ends_with('\n')) reasons.pop_back();
    throw UserError(
        {.what = name() + ": the function would be traced more often than max_traces allows",
         .where = call,
         .found = reasons,
         .wanted = fmt::format("at most {}", options.max_traces),
         .cure = "pass arguments of the same kind in each call, or raise max_traces"});
  }

  /// Adds the record of a new trace. Warns once if it was made for another value of a number.
  void add(TraceRecord record, const Span& call) {
    std::optional<ChangedNumber> changed;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      num_traces += 1;
      records.push_back(std::move(record));
      if (records.size() > kMostRecords) records.pop_front();
      if (!has_warned) changed = changed_number(records);
      has_warned = has_warned || changed.has_value();
    }
    if (!changed) return;
    warn({.what = name() + ": the function is compiled again for each value of a number",
          .where = call,
          .found = fmt::format("static value {}: {} before, {} now", changed->path, changed->before,
                               changed->now),
          .cure = "make it a Scalar, so that one program takes any value; or wrap it in Static, if "
                  "each value should have its own program"});
  }
};

JitCore::JitCore(JitOptions options, const std::source_location& where)
    : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->where = where;
}

JitCore::~JitCore() = default;

std::shared_ptr<Program> JitCore::lower(const Walk& arguments, Body& body,
                                        const std::source_location& where) {
  const Span span = where.line() == 0 ? state_->where : Span(where);
  const Settings settings = current_settings();
  std::string key = cache_key(arguments, body, settings, span);
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    const std::shared_ptr<Entry>* known = state_->entries.find(key);
    entry =
        known != nullptr ? *known : state_->entries.insert(std::move(key), make_entry(arguments));
  }
  entry->once.call([&] {
    const trace::Outside outside;
    TraceRecord record;
    try {
      Walk walk = body.walk_arguments(Walk::Want::paths);
      record = record_of(walk, arguments.structure(), body.argument_types(), settings);
      state_->check_num_traces(record, span);
      entry->program = Tracer(state_->options, settings, body, span).trace(arguments.structure());
    } catch (const UserError& error) {
      // Errors in a tree are found by code that does not know which line passed the tree.
      Mistake mistake = error.mistake();
      if (mistake.where.file.empty()) mistake.where = span;
      throw UserError(std::move(mistake));
    }
    state_->add(std::move(record), span);
  });
  return entry->program;
}

Outcome JitCore::call(const Walk& arguments, Body& body, const std::source_location& where) {
  if (is_jit_disabled()) {
    const Span span = where.line() == 0 ? state_->where : Span(where);
    return Tracer(state_->options, current_settings(), body, span).call_op_by_op();
  }
  std::shared_ptr<Program> program = lower(arguments, body, where);
  Outcome outcome = run(program, arguments, where);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->last = std::move(program);
  return outcome;
}

Outcome JitCore::call_traced(Body& body, const std::source_location& where) {
  const std::string& name = state_->options.name;
  return detail::call(body, name.empty() ? "jit" : name, where);
}

std::shared_ptr<Program> JitCore::last(const std::source_location& where) const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->last != nullptr) return state_->last;
  throw UserError({.what = "compiled(): the function has not been called yet",
                   .where = where.line() == 0 ? state_->where : Span(where),
                   .found = "no call",
                   .wanted = "at least one call",
                   .cure = "call the function first, or use lower(arguments...).compile()"});
}

int JitCore::num_traces() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->num_traces;
}

std::string JitCore::why_recompiled() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return why_last(state_->records);
}

}  // namespace tessera::detail
