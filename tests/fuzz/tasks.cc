#include "tests/fuzz/tasks.h"

#include <algorithm>
#include <map>
#include <memory>

#include "ir/builder.h"
#include "ops/control/mpmd.h"

namespace tessera::fuzz {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;
using Ids = std::vector<ValueId>;

constexpr std::int64_t kMostEquations = 6;  // of one task

class Cutter {
 public:
  Cutter(const Function& from, int num_groups, Random& random)
      : from_(from),
        num_groups_(num_groups),
        random_(random),
        result_(ir::empty_like(from)),
        b_(result_),
        home_(from.values.size(), -1),
        last_use_(from.values.size(), 0),
        versions_(from.values.size()) {}

  Function run() {
    find_last_uses();
    for (ValueId id : from_.inputs) {
      const ValueId input = result_.add_value(from_.values[id]);
      result_.inputs.push_back(input);
      versions_[id][-1] = input;
    }
    std::size_t begin = 0;
    while (begin < from_.equations.size()) {
      std::size_t end = begin + static_cast<std::size_t>(random_.between(1, kMostEquations));
      while (end < from_.equations.size() && !may_cut(end)) ++end;
      end = std::min(end, from_.equations.size());
      add_task(begin, end);
      begin = end;
    }
    for (ValueId id : from_.outputs) result_.outputs.push_back(versions_[id].at(home_[id]));
    return std::move(result_);
  }

 private:
  void find_last_uses() {
    for (std::size_t i = 0; i < from_.equations.size(); ++i) {
      for (ValueId id : from_.equations[i].operands) last_use_[id] = i;
    }
    for (ValueId id : from_.outputs) last_use_[id] = from_.equations.size();
  }

  /// Whether all values that are live across the cut are whole: neither partial sums nor windows.
  bool may_cut(std::size_t at) const {
    for (std::size_t i = 0; i < at; ++i) {
      for (ValueId id : from_.equations[i].results) {
        const Sharding& sharding = from_.sharding(id);
        const bool is_whole = sharding.partial.empty() && sharding.windows.empty();
        if (last_use_[id] >= at && !is_whole) return false;
      }
    }
    return true;
  }

  /// The value for use in a group, sent there by a transfer if needed.
  ValueId in_group(ValueId id, int group) {
    std::map<int, ValueId>& versions = versions_[id];
    if (const auto found = versions.find(group); found != versions.end()) return found->second;
    const bool is_free = home_[id] == -1;
    if (is_free && !random_.chance(30)) return versions.at(-1);
    const int from = is_free ? (group + 1) % num_groups_ : home_[id];
    return versions[group] = ops::transfer(b_, versions.at(home_[id]), from, group);
  }

  void add_task(std::size_t begin, std::size_t end) {
    const auto group = static_cast<int>(random_.pick(static_cast<std::size_t>(num_groups_)));
    auto body = std::make_shared<Function>(ir::empty_like(from_));
    body->name = "body";
    std::map<ValueId, ValueId> inside;
    Ids operands;
    Ids results;
    for (std::size_t i = begin; i < end; ++i) {
      Equation equation = from_.equations[i];
      for (ValueId& id : equation.operands) {
        if (!inside.contains(id)) {
          operands.push_back(id);
          inside[id] = body->add_value(from_.values[id]);
          body->inputs.push_back(inside[id]);
        }
        id = inside[id];
      }
      for (ValueId& id : equation.results) {
        if (last_use_[id] >= end) results.push_back(id);
        inside[id] = body->add_value(from_.values[id]);
        id = inside[id];
      }
      body->equations.push_back(std::move(equation));
    }
    if (results.empty()) return;
    for (ValueId id : results) body->outputs.push_back(inside[id]);
    ops::TaskParts parts{.name = "task_" + std::to_string(begin),
                         .group = group,
                         .stage = random_.between(-1, 3),
                         .microbatch = random_.between(-1, 3),
                         .shares = shares_of(operands, results)};
    Ids given;
    for (ValueId id : operands) given.push_back(in_group(id, group));
    const Ids made = ops::task(b_, parts, std::move(body), std::move(given));
    for (std::size_t i = 0; i < results.size(); ++i) {
      home_[results[i]] = group;
      versions_[results[i]][group] = made[i];
    }
  }

  ir::Ints shares_of(const Ids& operands, const Ids& results) {
    ir::Ints shares(results.size(), -1);
    for (std::size_t i = 0; i < results.size(); ++i) {
      for (std::size_t operand = 0; operand < operands.size(); ++operand) {
        const auto number = static_cast<std::int64_t>(operand);
        const bool is_taken = std::count(shares.begin(), shares.end(), number) != 0;
        const bool fits = from_.values[operands[operand]] == from_.values[results[i]];
        if (fits && !is_taken && random_.chance(70)) shares[i] = number;
        if (shares[i] >= 0) break;
      }
    }
    return shares;
  }

  const Function& from_;
  int num_groups_;
  Random& random_;
  Function result_;
  ir::Builder b_;
  std::vector<int> home_;              // per value: the group that computes it; -1 for inputs
  std::vector<std::size_t> last_use_;  // per value: its last reader; outputs: past the last one
  std::vector<std::map<int, ValueId>> versions_;  // per value and group; group -1 for inputs
};

}  // namespace

Function as_tasks(const Function& partitioned, int num_groups, Random& random) {
  return Cutter(partitioned, num_groups, random).run();
}

}  // namespace tessera::fuzz
