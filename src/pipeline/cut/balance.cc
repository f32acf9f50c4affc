#include "pipeline/cut/balance.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "pipeline/cut/costs.h"

namespace tessera::pipeline {

namespace {

constexpr double kNotAllowed = std::numeric_limits<double>::infinity();
/// Tolerance: sums of the same terms in another order count as equal.
constexpr double kRounding = 1 + 1e-9;
/// Limit on the tasks that are simulated while cuts are moved; they take some tenths of a second.
constexpr std::size_t kMostSimulated = 1'000'000;

/// Per stage: the most microbatches whose backward pass has not ended.
std::vector<double> in_flight(const BalanceOptions& options) {
  std::vector<double> most(static_cast<std::size_t>(options.num_stages), 0);
  std::vector<double> held = most;
  for (const RankTasks& rank : options.tasks) {
    for (const FusedTask& fused : rank) {
      for (const Task& task : fused.parts) {
        const auto stage = static_cast<std::size_t>(task.stage);
        if (task.kind == TaskKind::fwd) held[stage] += 1;
        if (task.kind == TaskKind::bwd || task.kind == TaskKind::bwd_weight) held[stage] -= 1;
        most[stage] = std::max(most[stage], held[stage]);
      }
    }
  }
  return most;
}

/// The costs of all possible stages of pieces [first, end), computed once.
class Candidates {
 public:
  Candidates(const Row& row, const BalanceOptions& options)
      : row_(row), size_(row.pieces.size()), in_flight_(in_flight(options)) {
    seconds_.push_back(0);
    held_.push_back(0);
    for (const Piece& piece : row.pieces) {
      seconds_.push_back(seconds_.back() + piece.forward + piece.backward);
      held_.push_back(held_.back() + piece.held);
    }
    weights_.assign(size_ * size_, 0);
    for (std::size_t first = 0; first < size_; ++first) add_weights(first);
  }

  std::size_t size() const { return size_; }
  /// Including its transfers forwards and backwards.
  double seconds(std::size_t first, std::size_t end) const {
    return seconds_[end] - seconds_[first] + 2 * sent(end) / kBytesPerSecond;
  }
  double sent(std::size_t end) const { return row_.pieces[end - 1].sent; }
  double bytes(std::size_t stage, std::size_t first, std::size_t end) const {
    return 2 * weights_[first * size_ + end - 1] + in_flight_[stage] * (held_[end] - held_[first]);
  }

 private:
  void add_weights(std::size_t first) {
    std::vector<bool> is_there(row_.weight_bytes.size(), false);
    double bytes = 0;
    for (std::size_t last = first; last < size_; ++last) {
      for (const std::size_t weight : row_.pieces[last].weights) {
        if (is_there[weight]) continue;
        is_there[weight] = true;
        bytes += row_.weight_bytes[weight];
      }
      weights_[first * size_ + last] = bytes;
    }
  }

  const Row& row_;
  std::size_t size_;
  std::vector<double> in_flight_;  // per stage
  std::vector<double> seconds_;    // per piece: the sum over all pieces before it
  std::vector<double> held_;       // likewise
  std::vector<double> weights_;    // per first and last piece
};

/// The cost of stage `stage` with pieces [first, end); kNotAllowed if that is not allowed.
using CostOfStage = std::function<double(std::size_t stage, std::size_t first, std::size_t end)>;
using Join = double (*)(double, double);

double largest(double a, double b) { return std::max(a, b); }
double sum(double a, double b) { return a + b; }

struct Found {
  Ends ends;
  double cost = kNotAllowed;
};

/// The cut with the lowest cost, where `join` combines the costs of two stages. Dynamic
/// programming, stage by stage.
Found best_cut(std::size_t num_pieces, std::size_t num_stages, const CostOfStage& cost_of,
               Join join) {
  const std::size_t width = num_pieces + 1;
  std::vector<double> best(width, kNotAllowed);
  best[0] = 0;
  std::vector<std::size_t> first_of(num_stages * width, 0);
  for (std::size_t stage = 0; stage < num_stages; ++stage) {
    std::vector<double> next(width, kNotAllowed);
    const std::size_t left = num_stages - 1 - stage;
    for (std::size_t end = stage + 1; end + left <= num_pieces; ++end) {
      if (left == 0 && end != num_pieces) continue;
      for (std::size_t first = stage; first < end; ++first) {
        if (best[first] == kNotAllowed) continue;
        const double cost = join(best[first], cost_of(stage, first, end));
        if (cost >= next[end]) continue;
        next[end] = cost;
        first_of[stage * width + end] = first;
      }
    }
    best = std::move(next);
  }
  Found found{.ends = Ends(num_stages), .cost = best[num_pieces]};
  std::size_t end = num_pieces;
  for (std::size_t stage = num_stages; stage-- > 0;) {
    found.ends[stage] = end;
    end = first_of[stage * width + end];
  }
  return found;
}

/// Moves single cuts as long as the schedule ends sooner.
class Mover {
 public:
  Mover(const Row& row, const BalanceOptions& options, const Candidates& candidates)
      : row_(row), options_(options), candidates_(candidates) {
    std::size_t num_tasks = 1;
    for (const RankTasks& rank : options.tasks) num_tasks += rank.size();
    left_ = kMostSimulated / num_tasks;
  }

  Ends improve(Ends ends) {
    Score best = score(ends);
    for (bool is_better = true; is_better && left_ > 0;) {
      is_better = false;
      for (std::size_t cut = 0; cut + 1 < ends.size(); ++cut) {
        for (const std::ptrdiff_t step : {-4, -2, -1, 1, 2, 4}) {
          Ends moved = ends;
          moved[cut] += static_cast<std::size_t>(step);
          if (left_ == 0 || !is_possible(moved, cut)) continue;
          const Score found = score(moved);
          if (!is_less(found, best)) continue;
          best = found;
          ends = std::move(moved);
          is_better = true;
        }
      }
    }
    return ends;
  }

 private:
  struct Score {
    double makespan;
    double bytes;
  };

  static bool is_less(const Score& a, const Score& b) {
    if (a.makespan * kRounding < b.makespan) return true;
    return a.makespan < b.makespan * kRounding && a.bytes < b.bytes;
  }

  /// An end that was moved below 0 has wrapped around to a huge value, which is not possible
  /// either.
  bool is_possible(const Ends& ends, std::size_t cut) const {
    if (ends[cut] >= ends[cut + 1] || ends[cut] <= first_of(ends, cut)) return false;
    for (const std::size_t stage : {cut, cut + 1}) {
      const double bytes = candidates_.bytes(stage, first_of(ends, stage), ends[stage]);
      if (bytes > options_.memory_limit) return false;
    }
    return true;
  }

  static std::size_t first_of(const Ends& ends, std::size_t stage) {
    return stage == 0 ? 0 : ends[stage - 1];
  }

  Score score(const Ends& ends) {
    --left_;
    Score score{.makespan = simulate(options_.tasks, costs_of_stages(row_, ends)).makespan,
                .bytes = 0};
    for (const std::size_t end : ends) score.bytes += candidates_.sent(end);
    return score;
  }

  const Row& row_;
  const BalanceOptions& options_;
  const Candidates& candidates_;
  std::size_t left_;
};

}  // namespace

ScheduleCosts costs_of_stages(const Row& row, const Ends& ends) {
  ScheduleCosts costs{.stages = {}};
  std::size_t piece = 0;
  double sent = 0;
  for (const std::size_t end : ends) {
    StageCosts& stage = costs.stages.emplace_back();
    stage = {.fwd = 0, .bwd_input = 0, .bwd_weight = 0, .memory = 0};
    for (; piece < end; ++piece) {
      stage.fwd += row.pieces[piece].forward;
      stage.bwd_input += row.pieces[piece].backward / 2;
      stage.bwd_weight += row.pieces[piece].backward / 2;
      stage.memory += row.pieces[piece].held;
    }
    sent = std::max(sent, row.pieces[end - 1].sent);
  }
  costs.transfer = sent / kBytesPerSecond;
  return costs;
}

Ends balance(const Row& row, const BalanceOptions& options) {
  const Candidates candidates(row, options);
  const auto num_stages = static_cast<std::size_t>(options.num_stages);
  const auto fits = [&](std::size_t stage, std::size_t first, std::size_t end) {
    return candidates.bytes(stage, first, end) <= options.memory_limit;
  };
  const CostOfStage seconds = [&](std::size_t stage, std::size_t first, std::size_t end) {
    return fits(stage, first, end) ? candidates.seconds(first, end) : kNotAllowed;
  };
  const double slowest = best_cut(candidates.size(), num_stages, seconds, largest).cost;
  if (slowest == kNotAllowed) return {};
  const CostOfStage bytes = [&](std::size_t stage, std::size_t first, std::size_t end) {
    const bool is_slower = candidates.seconds(first, end) > slowest * kRounding;
    return !is_slower && fits(stage, first, end) ? candidates.sent(end) : kNotAllowed;
  };
  const Found found = best_cut(candidates.size(), num_stages, bytes, sum);
  return Mover(row, options, candidates).improve(found.ends);
}

double least_bytes(const Row& row, const BalanceOptions& options) {
  const Candidates candidates(row, options);
  const CostOfStage bytes = [&](std::size_t stage, std::size_t first, std::size_t end) {
    return candidates.bytes(stage, first, end);
  };
  return best_cut(candidates.size(), static_cast<std::size_t>(options.num_stages), bytes, largest)
      .cost;
}

}  // namespace tessera::pipeline
