#include "compile/host/plan/plan.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "compile/host/plan/levels.h"
#include "compile/host/plan/order.h"
#include "compile/host/plan/plan_memory.h"

namespace tessera::compile::host {

namespace {

/// The constraints on the order of a program's instructions. If a plan is given, values that
/// overwrite a donated input in it still do so.
class ProblemOfOrder {
 public:
  explicit ProblemOfOrder(const HostProgram& program, const run::Executable* plan = nullptr)
      : program_(program), f_(*program.function), plan_(plan) {}

  OrderProblem make() {
    problem_.bytes.assign(f_.values.size(), 0);
    is_counted_.resize(f_.values.size());
    for (const HostInstruction& instruction : program_.instructions) add(instruction);
    for (const Unmade& unmade : program_.unmade) {
      problem_.steps[unmade.last].after.push_back(unmade.first);
      if (unmade.is_ahead) {
        // A separate device has the sum once this instruction has run.
        problem_.steps[unmade.last].writes.push_back(unmade.instead);
      } else if (unmade.instead != ir::kNoValue) {
        problem_.steps[unmade.first].reads.push_back(unmade.instead);
      }
    }
    for (const auto* ports : {&f_.inputs, &f_.outputs}) {
      for (const ValueId id : *ports) problem_.bytes[id] = 0;
    }
    if (plan_ != nullptr) keep_updates_in_place();
    return std::move(problem_);
  }

 private:
  void add(const HostInstruction& instruction) {
    OrderProblem::Step& step = problem_.steps.emplace_back();
    bool communicates = false;
    for (const TileTask& task : instruction.tasks) {
      for (const TileRef& read : task.reads) add_value(step.reads, read.value);
      for (const TileRef& write : task.writes) {
        add_value(step.writes, write.value);
        count(write);
      }
      for (const auto& [write, read] : task.may_share) {
        if (is_update(task, write)) add_value(step.updates, task.reads[read].value);
      }
      step.scratch += std::accumulate(task.scratch.begin(), task.scratch.end(), std::int64_t{0});
      communicates = communicates || task.communicates;
    }
    if (!communicates) return;
    // All processes meet in the same collective.
    if (last_to_communicate_) step.after.push_back(*last_to_communicate_);
    last_to_communicate_ = problem_.steps.size() - 1;
  }

  bool is_update(const TileTask& task, std::size_t write) const {
    const TileRef& result = task.writes[write];
    return task.touched_bytes &&
           *task.touched_bytes <
               tile_bytes(f_, program_.layouts[result.value], result.value, result.tile);
  }

  /// Successive tasks of an instruction mostly read the same values.
  static void add_value(std::vector<std::size_t>& values, ValueId id) {
    if (std::find(values.begin(), values.end(), id) == values.end()) values.push_back(id);
  }

  void count(const TileRef& write) {
    std::vector<bool>& is_counted = is_counted_[write.value];
    const Layout& layout = program_.layouts[write.value];
    is_counted.resize(static_cast<std::size_t>(layout.num_tiles()), false);
    if (is_counted[static_cast<std::size_t>(write.tile)]) return;
    is_counted[static_cast<std::size_t>(write.tile)] = true;
    problem_.bytes[write.value] += tile_bytes(f_, layout, write.value, write.tile);
  }

  /// A step that overwrites a donated input, or updates a value, stays after everything that reads
  /// it.
  void keep_updates_in_place() {
    std::vector<std::vector<std::size_t>> readers(f_.values.size());
    std::vector<std::vector<std::size_t>> writers(f_.values.size());
    for (std::size_t i = 0; i < problem_.steps.size(); ++i) {
      for (const std::size_t id : problem_.steps[i].reads) readers[id].push_back(i);
      for (const std::size_t id : problem_.steps[i].writes) writers[id].push_back(i);
    }
    const auto stay_behind = [&](std::size_t writer, ValueId id) {
      auto& after = problem_.steps[writer].after;
      std::copy_if(readers[id].begin(), readers[id].end(), std::back_inserter(after),
                   [&](std::size_t reader) { return reader < writer; });
    };
    for (std::size_t i = 0; i < f_.outputs.size(); ++i) {
      const int alias = plan_->outputs[i].alias;
      if (alias < 0) continue;
      const ValueId input = f_.inputs[static_cast<std::size_t>(alias)];
      for (const std::size_t writer : writers[f_.outputs[i]]) stay_behind(writer, input);
    }
    for (std::size_t i = 0; i < problem_.steps.size(); ++i) {
      for (const std::size_t id : problem_.steps[i].updates) {
        stay_behind(i, static_cast<ValueId>(id));
      }
    }
  }

  const HostProgram& program_;
  const Function& f_;
  const run::Executable* plan_;
  OrderProblem problem_;
  std::vector<std::vector<bool>> is_counted_;  // per value and tile
  std::optional<std::size_t> last_to_communicate_;
};

HostProgram reordered(HostProgram program, const std::vector<std::size_t>& order) {
  std::vector<HostInstruction> instructions;
  std::vector<std::size_t> place(order.size());
  instructions.reserve(order.size());
  for (const std::size_t before : order) {
    place[before] = instructions.size();
    instructions.push_back(std::move(program.instructions[before]));
  }
  program.instructions = std::move(instructions);
  for (Unmade& unmade : program.unmade) {
    unmade.first = place[unmade.first];
    unmade.last = place[unmade.last];
  }
  return program;
}

}  // namespace

HostProgram in_order(HostProgram program, const run::Executable& plan) {
  const std::vector<std::size_t> order = order_of(ProblemOfOrder(program, &plan).make());
  return reordered(std::move(program), order);
}

run::Executable plan(HostProgram program, const CompileOptions& options) {
  // With groups, the schedule fixes the order of tasks.
  const bool may_reorder = program.groups.count == 0;
  if (may_reorder) {
    const std::vector<std::size_t> order = reads_before_updates(ProblemOfOrder(program).make());
    program = reordered(std::move(program), order);
  }
  run::Executable best = plan_memory(program, options);
  if (may_reorder) {
    run::Executable ordered = plan_memory(in_order(std::move(program), best), options);
    const bool is_worse = ordered.arena_bytes > best.arena_bytes ||
                          ordered.device_peak_bytes > best.device_peak_bytes;
    if (!is_worse) best = std::move(ordered);
  }
  set_levels(best);
  return best;
}

}  // namespace tessera::compile::host
