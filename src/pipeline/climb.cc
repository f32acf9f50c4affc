#include "pipeline/climb.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "pipeline/walk.h"

namespace tessera::pipeline {

namespace {

/// Limit on simulated tasks, which take some tenths of a second.
constexpr std::size_t kMostWalked = 4'000'000;

struct Score {
  double makespan = kNever;
  double ends = kNever;  // sum over all ranks

  bool is_better_than(const Score& other) const {
    constexpr double kLess = 1 - 1e-12;
    if (makespan < other.makespan * kLess) return true;
    return makespan <= other.makespan && ends < other.ends * kLess;
  }
};

class Climber {
 public:
  Climber(ScheduleTasks& tasks, const ScheduleCosts& costs, double limit)
      : tasks_(tasks), costs_(costs), limit_(limit), ends_(0, 0, 0) {
    for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
      for (const FusedTask& fused : tasks[rank]) {
        const Task& task = fused.parts[0];
        const auto stage = static_cast<std::size_t>(task.stage);
        if (stage >= rank_of_.size()) rank_of_.resize(stage + 1);
        rank_of_[stage] = rank;
        num_microbatches_ = std::max(num_microbatches_, task.microbatch + 1);
        num_tasks_ += 1;
      }
    }
  }

  void climb() {
    Score best = score();
    for (bool is_better = true; is_better;) {
      is_better = false;
      for (RankTasks& list : tasks_) {
        for (std::size_t i = 0; i + 1 < list.size(); ++i) {
          if (walked_ > kMostWalked) return;
          if (!may_change(list[i].parts[0], list[i + 1].parts[0])) continue;
          std::swap(list[i], list[i + 1]);
          const Score found = score();
          if (found.is_better_than(best)) {
            best = found;
            is_better = true;
          } else {
            std::swap(list[i], list[i + 1]);
          }
        }
      }
    }
  }

 private:
  /// Whether two neighbouring tasks may swap. Sums must be added in the order of the microbatches.
  static bool may_change(const Task& a, const Task& b) {
    const auto has_weight = [](TaskKind kind) {
      return kind == TaskKind::bwd || kind == TaskKind::bwd_weight;
    };
    if (a.stage != b.stage) return true;
    return a.kind != b.kind && !(has_weight(a.kind) && has_weight(b.kind));
  }

  double arrival(Work work, std::int64_t from, const Task& reader) const {
    const bool is_sent = rank_of_[static_cast<std::size_t>(from)] !=
                         rank_of_[static_cast<std::size_t>(reader.stage)];
    return ends_.at(work, from, reader.microbatch) + (is_sent ? costs_.transfer : 0);
  }

  /// When the inputs of the task are available; kNever if one is not computed yet.
  double ready(const Task& task) const {
    if (task.kind == TaskKind::fwd) {
      return task.stage == 0 ? 0 : arrival(Work::fwd, task.stage - 1, task);
    }
    if (task.kind == TaskKind::bwd_weight)
      return ends_.at(Work::input, task.stage, task.microbatch);
    const double own = ends_.at(Work::fwd, task.stage, task.microbatch);
    const bool is_last = static_cast<std::size_t>(task.stage) + 1 == rank_of_.size();
    return is_last ? own : std::max(own, arrival(Work::input, task.stage + 1, task));
  }

  struct Rank {
    std::size_t next = 0;
    double free = 0;
    double held = 0;
  };

  /// Runs the tasks of a rank until one has to wait; true if any ran. A rank whose `held` exceeds
  /// the limit never continues, so that the score becomes kNever.
  bool run(const RankTasks& list, Rank& rank) {
    const std::size_t first = rank.next;
    for (; rank.next < list.size(); ++rank.next) {
      const Task& task = list[rank.next].parts[0];
      const double start = std::max(rank.free, ready(task));
      if (start == kNever) break;
      const StageCosts& costs = costs_of(costs_, task.stage);
      rank.free = start + time_of(task.kind, costs);
      ends_.at(work_of(task.kind), task.stage, task.microbatch) = rank.free;
      if (task.kind == TaskKind::fwd) rank.held += costs.memory;
      if (rank.held > limit_ * (1 + 1e-12)) return false;
      if (task.kind == TaskKind::bwd || task.kind == TaskKind::bwd_weight) {
        rank.held -= costs.memory;
      }
    }
    return rank.next > first;
  }

  Score score() {
    ends_ =
        WorkTable<double>(static_cast<std::int64_t>(rank_of_.size()), num_microbatches_, kNever);
    std::vector<Rank> ranks(tasks_.size());
    walked_ += num_tasks_;
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (std::size_t r = 0; r < ranks.size(); ++r) goes_on = run(tasks_[r], ranks[r]) || goes_on;
    }
    Score score{.makespan = 0, .ends = 0};
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r].next < tasks_[r].size()) return {};
      score.makespan = std::max(score.makespan, ranks[r].free);
      score.ends += ranks[r].free;
    }
    return score;
  }

  ScheduleTasks& tasks_;
  const ScheduleCosts& costs_;
  double limit_;
  std::vector<std::size_t> rank_of_;  // per stage
  std::int64_t num_microbatches_ = 0;
  std::size_t num_tasks_ = 0;
  std::size_t walked_ = 0;
  WorkTable<double> ends_;
};

}  // namespace

ScheduleTasks climb(ScheduleTasks tasks, const ScheduleCosts& costs, double limit) {
  for (const RankTasks& rank : tasks) {
    for (const FusedTask& fused : rank) {
      if (fused.parts.size() != 1) return tasks;
    }
  }
  Climber(tasks, costs, limit).climb();
  return tasks;
}

}  // namespace tessera::pipeline
