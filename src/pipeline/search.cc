// The search behind AutoSchedule: lists are made by list scheduling with many policies, and the one
// with the shortest makespan is kept.

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <limits>
#include <optional>

#include "pipeline/climb.h"
#include "pipeline/schedules.h"
#include "pipeline/walk.h"

namespace tessera {

namespace {

using pipeline::kNever;
using pipeline::Placement;
using pipeline::Sizes;
using pipeline::Work;
using pipeline::WorkTable;

/// Tolerance, because a sum that equals the limit may be rounded to slightly more.
constexpr double kRounding = 1 + 1e-12;

/// How a rank chooses among the tasks that can run.
struct Policy {
  Placement placement = Placement::loop;
  std::array<int, 3> order = {};  // priority by Work: the lowest value goes first
  bool by_age = false;            // then the oldest microbatch goes first, or else the latest stage
  /// A rank admits `base` microbatches, and `slope` more for each rank after it.
  std::int64_t base = 0, slope = 0;
  /// When a microbatch is admitted, memory for all stages of the rank is reserved.
  bool reserves = false;
  double patience = 0;  // how long to wait for a task that goes first
};

/// Simulates the ranks forward in time; each takes the task that the policy prefers.
class Scheduler {
 public:
  Scheduler(const Sizes& sizes, const ScheduleCosts& costs, double limit, const Policy& policy)
      : sizes_(sizes),
        costs_(costs),
        policy_(policy),
        ends_(sizes.num_stages, sizes.num_microbatches, kNever),
        next_(static_cast<std::size_t>(sizes.num_stages)),
        ranks_(static_cast<std::size_t>(sizes.num_ranks)) {
    for (std::int64_t r = 0; r < sizes.num_ranks; ++r) {
      Rank& rank = ranks_[static_cast<std::size_t>(r)];
      for (std::int64_t c = 0; c < sizes.num_chunks(); ++c) {
        const std::int64_t s = pipeline::stage_of(policy.placement, sizes.num_ranks, r, c);
        next_[static_cast<std::size_t>(s)].rank = r;
        rank.stages.push_back(s);
        rank.memory += memory_of(s);
      }
      const std::int64_t admitted = policy.base + policy.slope * (sizes.num_ranks - 1 - r);
      rank.limit = std::min(limit, static_cast<double>(admitted) * rank.memory);
    }
  }

  /// nullopt if the ranks get stuck because they wait for memory.
  std::optional<ScheduleTasks> run() {
    const std::int64_t total = 3 * sizes_.num_stages * sizes_.num_microbatches;
    for (Rank& rank : ranks_) rank.choice = choose(rank);
    for (std::int64_t done = 0; done < total; ++done) {
      Rank& rank = *std::min_element(
          ranks_.begin(), ranks_.end(),
          [](const Rank& a, const Rank& b) { return a.choice.start < b.choice.start; });
      if (rank.choice.start == kNever) return std::nullopt;
      run_choice(rank);
    }
    ScheduleTasks tasks;
    for (Rank& rank : ranks_) tasks.push_back(std::move(rank.tasks));
    return tasks;
  }

  double makespan() const {
    double latest = 0;
    for (const Rank& rank : ranks_) latest = std::max(latest, rank.free);
    return latest;
  }

 private:
  struct Choice {
    double start = kNever;
    Work work = Work::fwd;
    std::int64_t stage = 0;
    std::int64_t microbatch = 0;
  };
  struct Rank {
    std::vector<std::int64_t> stages;
    double memory = 0;  // of one microbatch in all its stages
    double limit = 0;
    double held = 0;
    double free = 0;  // idle from this time on
    Choice choice;
    RankTasks tasks;
  };
  struct Stage {
    std::int64_t rank = 0;
    std::int64_t next[3] = {0, 0, 0};  // next microbatch, by Work
  };

  double memory_of(std::int64_t stage) const { return pipeline::costs_of(costs_, stage).memory; }
  Stage& stage_at(std::int64_t stage) { return next_[static_cast<std::size_t>(stage)]; }
  const Stage& stage_at(std::int64_t stage) const { return next_[static_cast<std::size_t>(stage)]; }

  /// When the result of `stage` has arrived on the rank of `reader`.
  double arrival(Work work, std::int64_t stage, std::int64_t reader, std::int64_t m) const {
    const bool is_sent = stage_at(stage).rank != stage_at(reader).rank;
    return ends_.at(work, stage, m) + (is_sent ? costs_.transfer : 0);
  }

  double ready(Work work, std::int64_t s, std::int64_t m) const {
    if (work == Work::fwd) return s == 0 ? 0 : arrival(Work::fwd, s - 1, s, m);
    if (work == Work::weight) return ends_.at(Work::input, s, m);
    const double own = ends_.at(Work::fwd, s, m);
    if (s + 1 == sizes_.num_stages) return own;
    return std::max(own, arrival(Work::input, s + 1, s, m));
  }

  /// The memory that must be free to run the task.
  double need(const Rank& rank, Work work, std::int64_t s) const {
    if (work != Work::fwd) return 0;
    if (!policy_.reserves) return memory_of(s);
    return s == rank.stages[0] ? rank.memory : 0;
  }

  bool goes_before(const Choice& a, const Choice& b) const {
    const int first = policy_.order[static_cast<std::size_t>(a.work)];
    const int second = policy_.order[static_cast<std::size_t>(b.work)];
    if (first != second) return first < second;
    if (policy_.by_age && a.microbatch != b.microbatch) return a.microbatch < b.microbatch;
    return a.stage > b.stage;
  }

  Choice choose(const Rank& rank) const {
    std::vector<Choice> choices;
    double earliest = kNever;
    for (const std::int64_t s : rank.stages) {
      for (const Work work : {Work::fwd, Work::input, Work::weight}) {
        const std::int64_t m = stage_at(s).next[static_cast<std::size_t>(work)];
        if (m >= sizes_.num_microbatches) continue;
        if (rank.held + need(rank, work, s) > rank.limit * kRounding) continue;
        const double start = std::max(rank.free, ready(work, s, m));
        if (start == kNever) continue;
        choices.push_back({start, work, s, m});
        earliest = std::min(earliest, start);
      }
    }
    Choice best;
    for (const Choice& choice : choices) {
      if (choice.start > earliest + policy_.patience) continue;
      if (best.start == kNever || goes_before(choice, best)) best = choice;
    }
    return best;
  }

  void run_choice(Rank& rank) {
    constexpr TaskKind kKinds[] = {TaskKind::fwd, TaskKind::bwd_input, TaskKind::bwd_weight};
    const Choice choice = rank.choice;
    const TaskKind kind = kKinds[static_cast<std::size_t>(choice.work)];
    const StageCosts& costs = pipeline::costs_of(costs_, choice.stage);
    rank.held += need(rank, choice.work, choice.stage);
    if (choice.work == Work::weight) rank.held -= costs.memory;
    rank.free = choice.start + pipeline::time_of(kind, costs);
    ends_.at(choice.work, choice.stage, choice.microbatch) = rank.free;
    ++stage_at(choice.stage).next[static_cast<std::size_t>(choice.work)];
    rank.tasks.push_back({{{kind, choice.stage, choice.microbatch}}});
    rank.choice = choose(rank);
    const std::int64_t reader = choice.stage + (choice.work == Work::fwd ? 1 : -1);
    if (choice.work == Work::weight || reader < 0 || reader >= sizes_.num_stages) return;
    Rank& other = ranks_[static_cast<std::size_t>(stage_at(reader).rank)];
    other.choice = choose(other);
  }

  const Sizes& sizes_;
  const ScheduleCosts& costs_;
  const Policy& policy_;
  WorkTable<double> ends_;
  std::vector<Stage> next_;  // by stage
  std::vector<Rank> ranks_;
};

std::vector<Policy> policies(const Sizes& sizes, const ScheduleCosts& costs) {
  const StageCosts& stage = costs.stages[0];
  std::vector<Policy> result;
  const std::int64_t p = sizes.num_ranks;
  std::vector<Placement> placements = {Placement::loop};
  if (sizes.num_chunks() > 1) placements.push_back(Placement::zigzag);
  for (const Placement placement : placements) {
    for (const std::array<int, 3>& order : {std::array{1, 0, 2}, {0, 1, 2}, {2, 0, 1}}) {
      for (const auto& [base, slope] :
           std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 0},
                                                              {1, 1},
                                                              {1, 2},
                                                              {2, 0},
                                                              {2, 1},
                                                              {2, 2},
                                                              {3, 1},
                                                              {(p + 1) / 2, 0},
                                                              {(p + 1) / 2 + 1, 0},
                                                              {p, 0},
                                                              {p + 1, 0},
                                                              {2 * p, 0},
                                                              {sizes.num_microbatches, 0}}) {
        for (const bool reserves : {true, false}) {
          for (const bool by_age : {true, false}) {
            for (const double patience : {0.0, stage.bwd_weight / 2}) {
              result.push_back({placement, order, by_age, base, slope, reserves, patience});
            }
          }
        }
      }
    }
  }
  return result;
}

/// The best schedule so far.
struct Best {
  ScheduleTasks tasks;
  double makespan = kNever;
  double memory = kNever;        // on the rank that holds most
  double least_memory = kNever;  // lowest peak of all schedules tried
};

double peak(const Simulation& run) {
  return *std::max_element(run.peak_memory.begin(), run.peak_memory.end());
}

/// If two schedules have the same makespan, the one that needs less memory is kept.
void keep_better(ScheduleTasks tasks, const Simulation& run, double limit, Best& best) {
  const double memory = peak(run);
  best.least_memory = std::min(best.least_memory, memory);
  if (memory > limit * kRounding ||
      std::pair(run.makespan, memory) >= std::pair(best.makespan, best.memory)) {
    return;
  }
  best.makespan = run.makespan;
  best.memory = memory;
  best.tasks = std::move(tasks);
}

void try_built_in(const Sizes& sizes, const ScheduleCosts& costs, double limit, Best& best) {
  for (const pipeline::ScheduleRecord& record : pipeline::schedule_records()) {
    if (!pipeline::is_made_for(record, sizes)) continue;
    ScheduleTasks tasks = pipeline::tasks_of(record, sizes);
    const Simulation run = simulate(tasks, costs);
    keep_better(std::move(tasks), run, limit, best);
  }
}

void try_policies(const Sizes& sizes, const ScheduleCosts& costs, double limit, Best& best) {
  for (const Policy& policy : policies(sizes, costs)) {
    Scheduler scheduler(sizes, costs, limit, policy);
    std::optional<ScheduleTasks> tasks = scheduler.run();
    if (!tasks || scheduler.makespan() > best.makespan) continue;
    const Simulation run = simulate(*tasks, costs);
    keep_better(std::move(*tasks), run, limit, best);
  }
}

}  // namespace

ScheduleTasks AutoSchedule::tasks(std::int64_t num_microbatches, std::source_location where) const {
  // Sequential supports all sizes that any built-in schedule supports, so that it reports wrong
  // sizes; simulating it checks the costs.
  const ScheduleTasks simplest =
      schedule_tasks("Sequential", {num_stages, mpmd_dim}, num_microbatches, where);
  simulate(simplest, costs, where);
  const Sizes sizes{num_stages, mpmd_dim, num_microbatches};
  Best best;
  try_built_in(sizes, costs, memory_limit, best);
  try_policies(sizes, costs, memory_limit, best);
  if (!best.tasks.empty()) return pipeline::climb(std::move(best.tasks), costs, memory_limit);
  throw UserError({.what = "schedule: no schedule fits in the memory limit",
                   .where = where,
                   .found = fmt::format("a limit of {:.6g} for {} stages on {} ranks", memory_limit,
                                        num_stages, mpmd_dim),
                   .wanted = fmt::format("at least {:.6g}, the memory of one microbatch on a rank",
                                         best.least_memory),
                   .cure = "raise the limit, or make microbatches smaller"});
}

}  // namespace tessera
