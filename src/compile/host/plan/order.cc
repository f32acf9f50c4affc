#include "compile/host/plan/order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

namespace tessera::compile::host {

namespace {

using Step = OrderProblem::Step;

/// A step moves up together with at most this many others, which bounds the search for them.
constexpr std::size_t kMostTogether = 8;

void make_unique(std::vector<std::size_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

/// Per step: the values that it reads or writes, each once.
std::vector<std::vector<std::size_t>> values_of(const OrderProblem& problem) {
  std::vector<std::vector<std::size_t>> values;
  values.reserve(problem.steps.size());
  for (const Step& step : problem.steps) {
    std::vector<std::size_t>& all = values.emplace_back(step.reads);
    all.insert(all.end(), step.writes.begin(), step.writes.end());
    make_unique(all);
  }
  return values;
}

/// Per step: the steps that have to run before it.
std::vector<std::vector<std::size_t>> predecessors_of(const OrderProblem& problem) {
  std::vector<std::vector<std::size_t>> writer(problem.bytes.size());  // one or none
  std::vector<std::vector<std::size_t>> readers(problem.bytes.size());
  std::vector<std::vector<std::size_t>> before;
  before.reserve(problem.steps.size());
  for (std::size_t i = 0; i < problem.steps.size(); ++i) {
    const Step& step = problem.steps[i];
    std::vector<std::size_t> all = step.after;
    for (const std::size_t value : step.reads) {
      all.insert(all.end(), writer[value].begin(), writer[value].end());
    }
    for (const std::size_t value : step.writes) {
      all.insert(all.end(), writer[value].begin(), writer[value].end());
      all.insert(all.end(), readers[value].begin(), readers[value].end());
    }
    for (const std::size_t value : step.reads) readers[value].push_back(i);
    for (const std::size_t value : step.writes) {
      writer[value] = {i};
      readers[value].clear();
    }
    std::erase(all, i);
    make_unique(all);
    before.push_back(std::move(all));
  }
  return before;
}

/// Steps that are run one after the other, and what the remaining steps wait for.
class Sequence {
 protected:
  explicit Sequence(const OrderProblem& problem)
      : problem_(problem), before_(predecessors_of(problem)), behind_(problem.steps.size()) {
    for (std::size_t i = 0; i < before_.size(); ++i) {
      for (const std::size_t other : before_[i]) behind_[other].push_back(i);
    }
    reset();
  }

  void reset() {
    order_.clear();
    has_run_.assign(before_.size(), false);
    num_pending_.clear();
    for (const auto& before : before_) num_pending_.push_back(before.size());
  }

  void run(std::size_t step) {
    has_run_[step] = true;
    order_.push_back(step);
    for (const std::size_t next : behind_[step]) --num_pending_[next];
  }

  /// The step and everything that it waits for, in a valid order; empty if there are too many.
  std::optional<std::vector<std::size_t>> waiting_for(std::size_t step) const {
    std::vector<std::size_t> found = {step};
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (num_pending_[found[i]] >= kMostTogether) return std::nullopt;
      if (num_pending_[found[i]] == 0) continue;
      for (const std::size_t other : before_[found[i]]) {
        if (has_run_[other] || std::find(found.begin(), found.end(), other) != found.end())
          continue;
        if (found.size() == kMostTogether) return std::nullopt;
        found.push_back(other);
      }
    }
    std::sort(found.begin(), found.end());  // the given order is valid
    return found;
  }

  const OrderProblem& problem_;
  std::vector<bool> has_run_;
  std::vector<std::size_t> order_;

 private:
  std::vector<std::vector<std::size_t>> before_;  // per step
  std::vector<std::vector<std::size_t>> behind_;  // per step
  std::vector<std::size_t> num_pending_;          // per step: those before it that have not run
};

class Ordering : private Sequence {
 public:
  explicit Ordering(const OrderProblem& problem)
      : Sequence(problem), values_(values_of(problem)), users_(problem.bytes.size()) {
    for (std::size_t i = 0; i < problem.steps.size(); ++i) {
      for (const std::size_t value : values_[i]) users_[value].push_back(i);
    }
    reset();
    for (std::size_t i = 0; i < problem.steps.size(); ++i) {
      peak_ = std::max(peak_, effect_of({i}).most);
      run(i);
    }
    reset();
  }

  std::vector<std::size_t> order() {
    for (std::size_t i = 0; i < problem_.steps.size(); ++i) {
      if (has_run_[i]) continue;
      run(i);
      for (std::size_t next = order_.size() - 1; next < order_.size(); ++next) {
        move_up_behind(order_[next]);
      }
    }
    return std::move(order_);
  }

 private:
  /// How steps would change the bytes in use if they ran next.
  struct Effect {
    std::int64_t after;
    std::int64_t most;
  };

  void reset() {
    Sequence::reset();
    is_made_.assign(problem_.bytes.size(), false);
    num_users_left_.clear();
    for (const auto& users : users_) num_users_left_.push_back(users.size());
    next_user_.assign(problem_.bytes.size(), 0);
    held_ = 0;
  }

  void run(std::size_t step) {
    Sequence::run(step);
    for (const std::size_t value : problem_.steps[step].writes) {
      if (!is_made_[value]) held_ += problem_.bytes[value];
      is_made_[value] = true;
    }
    for (const std::size_t value : values_[step]) {
      if (--num_users_left_[value] == 0 && is_made_[value]) held_ -= problem_.bytes[value];
    }
  }

  Effect effect_of(const std::vector<std::size_t>& steps) const {
    std::map<std::size_t, std::size_t> uses;
    std::vector<std::size_t> made;
    Effect effect{.after = held_, .most = held_};
    for (const std::size_t step : steps) {
      for (const std::size_t value : problem_.steps[step].writes) {
        const bool is_new =
            !is_made_[value] && std::find(made.begin(), made.end(), value) == made.end();
        if (!is_new) continue;
        made.push_back(value);
        effect.after += problem_.bytes[value];
      }
      effect.most = std::max(effect.most, effect.after + problem_.steps[step].scratch);
      for (const std::size_t value : values_[step]) {
        const bool is_last = ++uses[value] == num_users_left_[value];
        const bool is_made =
            is_made_[value] || std::find(made.begin(), made.end(), value) != made.end();
        if (is_last && is_made) effect.after -= problem_.bytes[value];
      }
    }
    return effect;
  }

  void move_up(std::size_t step) {
    if (has_run_[step]) return;
    const auto steps = waiting_for(step);
    if (!steps) return;
    const Effect effect = effect_of(*steps);
    if (effect.after >= held_ || effect.most > peak_) return;
    for (const std::size_t each : *steps) run(each);
  }

  /// Only steps that read a new value, or are now the last user of a value, can have become
  /// profitable.
  void move_up_behind(std::size_t step) {
    for (const std::size_t value : problem_.steps[step].writes) {
      for (const std::size_t user : users_[value]) move_up(user);
    }
    for (const std::size_t value : problem_.steps[step].reads) {
      if (num_users_left_[value] != 1) continue;
      std::size_t& next = next_user_[value];
      while (has_run_[users_[value][next]]) ++next;
      move_up(users_[value][next]);
    }
  }

  std::vector<std::vector<std::size_t>> values_;  // per step
  std::vector<std::vector<std::size_t>> users_;   // per value: steps
  std::vector<std::size_t> num_users_left_;       // per value
  std::vector<std::size_t> next_user_;            // per value: all users before this one have run
  std::vector<bool> is_made_;
  std::int64_t held_ = 0;
  std::int64_t peak_ = 0;
};

/// See reads_before_updates().
class EarlyReads : private Sequence {
 public:
  explicit EarlyReads(const OrderProblem& problem)
      : Sequence(problem), readers_(problem.bytes.size()) {
    for (std::size_t i = 0; i < problem.steps.size(); ++i) {
      for (const std::size_t value : problem.steps[i].reads) readers_[value].push_back(i);
    }
  }

  std::vector<std::size_t> order() {
    for (std::size_t i = 0; i < problem_.steps.size(); ++i) {
      if (has_run_[i]) continue;
      for (const std::size_t value : problem_.steps[i].updates) {
        for (const std::size_t reader : readers_[value]) {
          if (reader > i) run_before(i, reader);
        }
      }
      run(i);
    }
    return std::move(order_);
  }

 private:
  /// Runs the reader and everything that it waits for, unless that is the update or too much.
  void run_before(std::size_t update, std::size_t reader) {
    if (has_run_[reader]) return;
    const auto steps = waiting_for(reader);
    if (!steps || std::binary_search(steps->begin(), steps->end(), update)) return;
    for (const std::size_t step : *steps) run(step);
  }

  std::vector<std::vector<std::size_t>> readers_;  // per value
};

}  // namespace

std::vector<std::size_t> reads_before_updates(const OrderProblem& problem) {
  const bool has_updates = std::any_of(problem.steps.begin(), problem.steps.end(),
                                       [](const Step& step) { return !step.updates.empty(); });
  if (has_updates) return EarlyReads(problem).order();
  std::vector<std::size_t> order(problem.steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

std::vector<std::size_t> order_of(const OrderProblem& problem) { return Ordering(problem).order(); }

}  // namespace tessera::compile::host
