#include "tests/fuzz/pipeline/random_tasks.h"

#include <algorithm>
#include <array>
#include <map>

#include <tessera/error.h>

namespace tessera::fuzz {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class Drawing {
 public:
  Drawing(std::int64_t num_stages, std::int64_t groups, std::int64_t microbatches, Random& random)
      : num_stages_(num_stages),
        microbatches_(microbatches),
        random_(random),
        laziness_(random.choose(std::vector<std::int64_t>{1, 4, 20})),
        is_shuffled_(random.chance(25)),
        fused_(random.choose(std::vector<int>{0, 10, 50})),
        done_(at(num_stages), std::vector<bool>(at(microbatches), false)),
        backward_(at(num_stages), 0),
        weights_(at(num_stages), 0),
        tasks_(at(groups)) {
    for (std::int64_t stage = 0; stage < num_stages; ++stage) {
      rank_of_.push_back(stage < groups ? stage : random.between(0, groups - 1));
      joint_.push_back(random.choose(std::vector<int>{0, 0, 50, 100}));
    }
    random.shuffle(rank_of_);
  }

  ScheduleTasks run() {
    for (std::vector<Task> ready = ready_tasks(); !ready.empty(); ready = ready_tasks()) {
      add(random_.choose(ready));
    }
    fuse_some();
    return std::move(tasks_);
  }

 private:
  bool is_done(std::int64_t stage, std::int64_t microbatch) const {
    return done_[at(stage)][at(microbatch)];
  }

  /// All tasks that may run next. Tasks other than weight gradients are listed `laziness_` times,
  /// so that weight gradients are often drawn late.
  std::vector<Task> ready_tasks() const {
    std::vector<Task> ready;
    for (std::int64_t stage = 0; stage < num_stages_; ++stage) {
      add_forward(stage, ready);
      const std::int64_t next = backward_[at(stage)];
      const bool may_go_back = next < microbatches_ && is_done(stage, next) &&
                               (stage + 1 == num_stages_ || backward_[at(stage) + 1] > next);
      if (may_go_back) ready.insert(ready.end(), at(laziness_), {TaskKind::bwd_input, stage, next});
      const std::int64_t weight = weights_[at(stage)];
      if (weight < next) ready.push_back({TaskKind::bwd_weight, stage, weight});
    }
    return ready;
  }

  void add_forward(std::int64_t stage, std::vector<Task>& ready) const {
    // The last stage runs in order, because it adds up the loss.
    const bool in_order = !is_shuffled_ || stage + 1 == num_stages_;
    for (std::int64_t m = 0; m < microbatches_; ++m) {
      if (is_done(stage, m)) continue;
      if (stage == 0 || is_done(stage - 1, m)) {
        ready.insert(ready.end(), at(laziness_), {TaskKind::fwd, stage, m});
      }
      if (in_order) return;
    }
  }

  void add(Task task) {
    const std::size_t stage = at(task.stage);
    if (task.kind == TaskKind::fwd) {
      done_[stage][at(task.microbatch)] = true;
    } else if (task.kind == TaskKind::bwd_weight) {
      weights_[stage] += 1;
    } else {
      backward_[stage] += 1;
      if (weights_[stage] == task.microbatch && random_.chance(joint_[stage])) {
        task.kind = TaskKind::bwd;
        weights_[stage] += 1;
      }
    }
    tasks_[at(rank_of_[stage])].push_back({{task}});
  }

  /// Fuses random neighbouring tasks of a rank, unless that leads to a deadlock.
  void fuse_some() {
    for (RankTasks& rank : tasks_) {
      for (std::size_t i = 0; i + 1 < rank.size(); ++i) {
        if (!random_.chance(fused_)) continue;
        const RankTasks before = rank;
        const FusedTask second = rank[i + 1];
        rank[i].parts.insert(rank[i].parts.end(), second.parts.begin(), second.parts.end());
        rank.erase(rank.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        try {
          check_tasks(tasks_, num_stages_, microbatches_);
        } catch (const UserError&) {
          rank = before;
        }
      }
    }
  }

  std::int64_t num_stages_;
  std::int64_t microbatches_;
  Random& random_;
  std::int64_t laziness_;                // how strongly weight gradients are delayed
  bool is_shuffled_;                     // forward tasks may take microbatches in any order
  int fused_;                            // percent of tasks that are fused with the next one
  std::vector<std::vector<bool>> done_;  // per stage and microbatch: forward task is done
  std::vector<std::int64_t> backward_;   // per stage: number of input gradients done
  std::vector<std::int64_t> weights_;    // per stage: number of weight gradients done
  std::vector<std::int64_t> rank_of_;    // per stage
  std::vector<int> joint_;               // per stage: percent of backward tasks that are not split
  ScheduleTasks tasks_;
};

}  // namespace

ScheduleTasks random_tasks(std::int64_t num_stages, std::int64_t groups, std::int64_t microbatches,
                           Random& random) {
  return Drawing(num_stages, groups, microbatches, random).run();
}

bool delays_weight_gradients(const ScheduleTasks& tasks) {
  std::map<std::int64_t, std::int64_t> latest;  // by stage: microbatch of the last input gradient
  for (const RankTasks& rank : tasks) {
    for (const FusedTask& fused : rank) {
      for (const Task& task : fused.parts) {
        if (task.kind == TaskKind::bwd_weight && task.microbatch < latest[task.stage]) return true;
        if (task.kind == TaskKind::bwd_input) latest[task.stage] = task.microbatch;
      }
    }
  }
  return false;
}

}  // namespace tessera::fuzz
