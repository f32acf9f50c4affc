#include "compile/host/plan/plan.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "compile/host/plan/levels.h"
#include "compile/host/plan/order.h"
#include "compile/host/plan/plan_memory.h"

namespace tessera::compile::host {

namespace {

/// The constraints on the order of a program's instructions, given its memory plan.
class ProblemOfOrder {
 public:
  ProblemOfOrder(const HostProgram& program, const run::Executable& plan)
      : program_(program), f_(*program.function), plan_(plan) {}

  OrderProblem make() {
    problem_.bytes.assign(f_.values.size(), 0);
    is_counted_.resize(f_.values.size());
    for (const HostInstruction& instruction : program_.instructions) add(instruction);
    for (const Unmade& unmade : program_.unmade) {
      problem_.steps[unmade.last].after.push_back(unmade.first);
      if (unmade.is_ahead) {
        // A separate device has the sum when this instruction has run.
        problem_.steps[unmade.last].writes.push_back(unmade.instead);
      } else if (unmade.instead != ir::kNoValue) {
        problem_.steps[unmade.first].reads.push_back(unmade.instead);
      }
    }
    for (const auto* ports : {&f_.inputs, &f_.outputs}) {
      for (const ValueId id : *ports) problem_.bytes[id] = 0;
    }
    keep_updates_in_place();
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
      step.scratch += std::accumulate(task.scratch.begin(), task.scratch.end(), std::int64_t{0});
      communicates = communicates || task.communicates;
    }
    if (!communicates) return;
    // All processes meet in the same collective.
    if (last_to_communicate_) step.after.push_back(*last_to_communicate_);
    last_to_communicate_ = problem_.steps.size() - 1;
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

  /// What overwrites a donated input stays behind everything that reads it.
  void keep_updates_in_place() {
    std::vector<std::vector<std::size_t>> readers(f_.values.size());
    std::vector<std::vector<std::size_t>> writers(f_.values.size());
    for (std::size_t i = 0; i < problem_.steps.size(); ++i) {
      for (const std::size_t id : problem_.steps[i].reads) readers[id].push_back(i);
      for (const std::size_t id : problem_.steps[i].writes) writers[id].push_back(i);
    }
    for (std::size_t i = 0; i < f_.outputs.size(); ++i) {
      const int alias = plan_.outputs[i].alias;
      if (alias < 0) continue;
      const ValueId input = f_.inputs[static_cast<std::size_t>(alias)];
      for (const std::size_t writer : writers[f_.outputs[i]]) {
        auto& after = problem_.steps[writer].after;
        std::copy_if(readers[input].begin(), readers[input].end(), std::back_inserter(after),
                     [&](std::size_t reader) { return reader < writer; });
      }
    }
  }

  const HostProgram& program_;
  const Function& f_;
  const run::Executable& plan_;
  OrderProblem problem_;
  std::vector<std::vector<bool>> is_counted_;  // per value and tile
  std::optional<std::size_t> last_to_communicate_;
};

}  // namespace

HostProgram in_order(HostProgram program, const run::Executable& plan) {
  const std::vector<std::size_t> order = order_of(ProblemOfOrder(program, plan).make());
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

run::Executable plan(HostProgram program, const CompileOptions& options) {
  run::Executable best = plan_memory(program, options);
  // With groups, the schedule fixes the order of tasks.
  if (program.groups.count == 0) {
    run::Executable ordered = plan_memory(in_order(std::move(program), best), options);
    const bool is_worse = ordered.arena_bytes > best.arena_bytes ||
                          ordered.device_peak_bytes > best.device_peak_bytes;
    if (!is_worse) best = std::move(ordered);
  }
  set_levels(best);
  return best;
}

}  // namespace tessera::compile::host
