#include "pipeline/walk.h"

#include <algorithm>
#include <limits>

namespace tessera::pipeline {

namespace {

constexpr double kNotDone = std::numeric_limits<double>::infinity();
/// The end time of earlier parts of the same fused task, which delay nothing.
constexpr double kJustNow = -1;

/// Work that a task waits for.
struct Need {
  Work work;
  std::int64_t stage;
};

struct Needs {
  Need list[2];
  int count;
};

Needs needs_of(const Task& task, std::int64_t num_stages) {
  const std::int64_t s = task.stage;
  switch (task.kind) {
    case TaskKind::fwd:
      return {{{Work::fwd, s - 1}}, s > 0 ? 1 : 0};
    case TaskKind::bwd:
    case TaskKind::bwd_input:
      return {{{Work::fwd, s}, {Work::input, s + 1}}, s + 1 < num_stages ? 2 : 1};
    case TaskKind::bwd_weight:
      return {{{Work::input, s}}, 1};
  }
  throw InternalError("a task has a kind");
}

class Walker {
 public:
  Walker(const PlacedTasks& placed, const ScheduleCosts& costs)
      : placed_(placed),
        costs_(costs),
        ends_(placed.num_stages, placed.num_microbatches, kNotDone),
        next_(placed.tasks.size()),
        free_(placed.tasks.size()),
        starts_(placed.tasks.size()) {}

  std::vector<std::vector<double>> run(const Span& where) {
    std::vector<std::int64_t> ranks;
    for (std::size_t rank = 0; rank < placed_.tasks.size(); ++rank) {
      starts_[rank].reserve(placed_.tasks[rank].size());
      ranks.push_back(static_cast<std::int64_t>(rank));
    }
    while (!ranks.empty()) {
      const auto rank = static_cast<std::size_t>(ranks.back());
      ranks.pop_back();
      const RankTasks& tasks = placed_.tasks[rank];
      while (next_[rank] < tasks.size() && run_next(rank, tasks[next_[rank]])) {
        for (const Task& task : tasks[next_[rank]++].parts) add_waiting(task, ranks);
      }
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] < placed_.tasks[rank].size()) explain(rank, where);
    }
    return std::move(starts_);
  }

 private:
  double& end_of(Work work, std::int64_t stage, std::int64_t microbatch) {
    return ends_.at(work, stage, microbatch);
  }
  void set_end(const Task& task, double end) {
    end_of(work_of(task.kind), task.stage, task.microbatch) = end;
    if (task.kind == TaskKind::bwd) end_of(Work::weight, task.stage, task.microbatch) = end;
  }
  std::int64_t rank_of(std::int64_t stage) const {
    return placed_.rank_of_stage[static_cast<std::size_t>(stage)];
  }

  /// When the inputs of a task are available; kNotDone if one is not computed yet.
  double ready(const Task& task) {
    double latest = 0;
    const Needs needs = needs_of(task, placed_.num_stages);
    for (int i = 0; i < needs.count; ++i) {
      const Need& need = needs.list[i];
      const double end = end_of(need.work, need.stage, task.microbatch);
      const bool is_sent = rank_of(need.stage) != rank_of(task.stage);
      latest = std::max(latest, end + (is_sent ? costs_.transfer : 0));
    }
    return latest;
  }

  /// Runs the next task of a rank; false if it has to wait.
  bool run_next(std::size_t rank, const FusedTask& fused) {
    double start = free_[rank];
    for (const Task& task : fused.parts) {
      start = std::max(start, ready(task));
      set_end(task, kJustNow);
    }
    const bool can_run = start < kNotDone;
    double end = start;
    for (const Task& task : fused.parts) {
      end += time_of(task.kind, costs_of(costs_, task.stage));
      set_end(task, can_run ? end : kNotDone);
    }
    if (!can_run) return false;
    starts_[rank].push_back(start);
    free_[rank] = end;
    return true;
  }

  /// Adds the rank that may be waiting for the task.
  void add_waiting(const Task& task, std::vector<std::int64_t>& ranks) const {
    const std::int64_t stage = task.stage + (task.kind == TaskKind::fwd ? 1 : -1);
    if (task.kind == TaskKind::bwd_weight || stage < 0 || stage >= placed_.num_stages) return;
    if (rank_of(stage) != rank_of(task.stage)) ranks.push_back(rank_of(stage));
  }

  /// A task that cannot run, and one that it waits for.
  struct Wait {
    Task task;
    Position at;
    Task needed;
    Position needed_at;
  };

  Wait wait_of(std::size_t rank) {
    const Position at{static_cast<std::int64_t>(rank), static_cast<std::int64_t>(next_[rank])};
    const std::vector<Task>& parts = placed_.tasks[rank][next_[rank]].parts;
    Wait wait;
    for (const Task& task : parts) {
      const Needs needs = needs_of(task, placed_.num_stages);
      for (int i = 0; i < needs.count && wait.at.rank < 0; ++i) {
        const Need& need = needs.list[i];
        if (end_of(need.work, need.stage, task.microbatch) < kNotDone) continue;
        const Position needed_at = placed_.positions.at(need.work, need.stage, task.microbatch);
        wait = {task, at, task_at(needed_at, need, task.microbatch), needed_at};
      }
      set_end(task, kJustNow);
    }
    for (const Task& task : parts) set_end(task, kNotDone);
    return wait;
  }

  Task task_at(const Position& at, const Need& need, std::int64_t microbatch) const {
    const RankTasks& rank = placed_.tasks[static_cast<std::size_t>(at.rank)];
    for (const Task& task : rank[static_cast<std::size_t>(at.index)].parts) {
      const bool is_it = work_of(task.kind) == need.work ||
                         (task.kind == TaskKind::bwd && need.work == Work::weight);
      if (task.stage == need.stage && task.microbatch == microbatch && is_it) return task;
    }
    throw InternalError("a task is at the position where it was found");
  }

  /// Explains why `rank` cannot run: follows tasks to the ones they wait for, until a task waits
  /// for a later one of its own rank, or until ranks wait for each other in a cycle.
  [[noreturn]] void explain(std::size_t rank, const Span& where) {
    std::vector<Wait> chain;
    while (true) {
      const Wait wait = wait_of(rank);
      if (wait.needed_at.rank == wait.at.rank) throw too_early(wait, where);
      const auto* first = std::find_if(chain.data(), chain.data() + chain.size(),
                                       [&](const Wait& w) { return w.at == wait.at; });
      if (first != chain.data() + chain.size()) {
        chain.erase(chain.begin(), chain.begin() + (first - chain.data()));
        throw deadlock(chain, where);
      }
      chain.push_back(wait);
      rank = static_cast<std::size_t>(wait.needed_at.rank);
    }
  }

  static UserError too_early(const Wait& wait, const Span& where) {
    const std::string task = to_string(wait.task), needed = to_string(wait.needed);
    return UserError({.what = "schedule: " + task + " comes too early",
                      .where = where,
                      .found = task + " at " + to_string(wait.at) + " needs " + needed +
                               ", which is at position " + std::to_string(wait.needed_at.index),
                      .wanted = "every task after the tasks that it needs",
                      .cure = "move " + task + " after " + needed});
  }

  static UserError deadlock(const std::vector<Wait>& chain, const Span& where) {
    std::string found;
    for (const Wait& wait : chain) {
      found += (found.empty() ? "" : "; ") + to_string(wait.task) + " at " + to_string(wait.at) +
               " waits for " + to_string(wait.needed) + " at " + to_string(wait.needed_at);
    }
    return UserError(
        {.what = "schedule: ranks wait for each other",
         .where = where,
         .found = found,
         .wanted = "task lists that every rank can run to the end",
         .cure = "move " + to_string(chain[0].task) + " after " + to_string(chain.back().needed)});
  }

  const PlacedTasks& placed_;
  const ScheduleCosts& costs_;
  WorkTable<double> ends_;
  std::vector<std::size_t> next_;  // position, by rank
  std::vector<double> free_;       // when the rank has finished its last task so far
  std::vector<std::vector<double>> starts_;
};

}  // namespace

double time_of(TaskKind kind, const StageCosts& costs) {
  switch (kind) {
    case TaskKind::fwd:
      return costs.fwd;
    case TaskKind::bwd:
      return costs.bwd_input + costs.bwd_weight;
    case TaskKind::bwd_input:
      return costs.bwd_input;
    case TaskKind::bwd_weight:
      return costs.bwd_weight;
  }
  throw InternalError("a task has a kind");
}

const StageCosts& costs_of(const ScheduleCosts& costs, std::int64_t stage) {
  return costs.stages[costs.stages.size() == 1 ? 0 : static_cast<std::size_t>(stage)];
}

std::vector<std::vector<double>> walk(const PlacedTasks& placed, const ScheduleCosts& costs,
                                      const Span& where) {
  return Walker(placed, costs).run(where);
}

}  // namespace tessera::pipeline
