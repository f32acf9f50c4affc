// Splits the backward pass of a stage in two: the part that the previous stage waits for, and the
// weight gradients. Values that several weight gradients need stay in the first part, even in stage
// 0, for which no stage waits.
#include <algorithm>
#include <map>

#include <tessera/error.h>

#include "ops/record.h"
#include "pipeline/program/stages.h"

namespace tessera::pipeline {

namespace {

constexpr int kNowhere = -1;
constexpr int kManyPlaces = -2;

int both(int a, int b) {
  if (a == kNowhere || a == b) return b;
  return b == kNowhere ? a : kManyPlaces;
}

class Splitter {
 public:
  Splitter(Stages& stages, std::int64_t stage)
      : stages_(stages),
        backward_{.work = Work::input, .stage = stage},
        leads_to_(stages.body.values.size(), kNowhere),
        reads_sum_(stages.body.values.size(), false),
        is_weight_(stages.body.equations.size(), false) {}

  void split() {
    const Function& body = stages_.body;
    for (std::size_t k = 0; k < body.outputs.size(); ++k) {
      leads_to_[body.outputs[k]] = both(leads_to_[body.outputs[k]], static_cast<int>(k));
    }
    for (std::size_t i = body.equations.size(); i-- > 0;) look_at(i);
    find_what_reads_sums();
    for (std::size_t i = 0; i < body.equations.size(); ++i) {
      if (is_weight_[i] && !adds_to_sum(i) && is_cheaper_now(i)) is_weight_[i] = false;
    }
    for (const auto& [place, equations] : additions()) add_now_if_cheaper(equations);
    for (std::size_t i = 0; i < body.equations.size(); ++i) {
      if (is_weight_[i]) stages_.homes[i].item.work = Work::weight;
    }
  }

 private:
  bool is_backward(std::size_t i) const {
    const Home& home = stages_.homes[i];
    return home.kind == Home::Kind::item && home.item == backward_;
  }

  int place_of(const Equation& equation) const {
    int place = kNowhere;
    for (ValueId id : equation.results) place = both(place, leads_to_[id]);
    return place;
  }

  /// Called in reverse program order, so that all users of the results have been seen.
  void look_at(std::size_t i) {
    const Equation& equation = stages_.body.equations[i];
    int place = kNowhere;
    if (is_backward(i) || stages_.homes[i].kind == Home::Kind::users) {
      place = place_of(equation);
      is_weight_[i] = is_backward(i) && place >= 0;
    } else {
      place = kManyPlaces;
    }
    for (ValueId id : equation.operands) leads_to_[id] = both(leads_to_[id], place);
  }

  void find_what_reads_sums() {
    const Function& body = stages_.body;
    for (ValueId id : body.inputs) reads_sum_[id] = stages_.is_carry(id);
    for (const Equation& equation : body.equations) {
      const bool reads = std::any_of(equation.operands.begin(), equation.operands.end(),
                                     [&](ValueId id) { return reads_sum_[id]; });
      for (ValueId id : equation.results) reads_sum_[id] = reads;
    }
  }

  bool adds_to_sum(std::size_t i) const { return reads_sum_[stages_.body.equations[i].results[0]]; }

  /// By output: the equations from the old value of a sum to the new one. Besides the addition,
  /// these may convert to the sharding of the added value and back.
  std::map<int, std::vector<std::size_t>> additions() const {
    std::map<int, std::vector<std::size_t>> result;
    for (std::size_t i = 0; i < stages_.body.equations.size(); ++i) {
      if (is_weight_[i] && adds_to_sum(i)) {
        result[place_of(stages_.body.equations[i])].push_back(i);
      }
    }
    return result;
  }

  /// Moves the addition back to the backward item if that is cheaper: all of its equations or none.
  /// The weight gradient of a microbatch may run after the backward tasks of later ones, which must
  /// not have read the sum by then.
  void add_now_if_cheaper(const std::vector<std::size_t>& equations) {
    for (std::size_t i : equations) is_weight_[i] = false;
    const bool is_cheaper = std::all_of(equations.begin(), equations.end(),
                                        [&](std::size_t i) { return is_cheaper_now(i); });
    for (std::size_t i : equations) is_weight_[i] = !is_cheaper;
  }

  bool is_late(ValueId id) const {
    const std::size_t i = stages_.definition[id];
    if (i == Stages::kNone) return false;
    if (is_weight_[i]) return true;
    if (stages_.homes[i].kind == Home::Kind::item) return false;
    const std::vector<ValueId>& operands = stages_.body.equations[i].operands;
    return std::any_of(operands.begin(), operands.end(), [&](ValueId o) { return is_late(o); });
  }

  std::int64_t bytes_of(const std::vector<ValueId>& ids) const {
    std::int64_t bytes = 0;
    for (ValueId id : ids) bytes += size_bytes(stages_.body.type(id));
    return bytes;
  }

  /// Whether the equation is better computed in the backward item: it reads nothing that is
  /// computed later, it is cheap, and waiting would hold operands that are larger than its results.
  bool is_cheaper_now(std::size_t i) const {
    const Equation& equation = stages_.body.equations[i];
    const double flops =
        (*equation.op->cost)(equation.attributes, ir::operand_types(stages_.body, equation),
                             ir::result_types(stages_.body, equation));
    const std::int64_t bytes = bytes_of(equation.operands);
    const bool waits = std::any_of(equation.operands.begin(), equation.operands.end(),
                                   [&](ValueId id) { return is_late(id); });
    return !waits && flops <= static_cast<double>(bytes) && bytes_of(equation.results) <= bytes;
  }

  Stages& stages_;
  Item backward_;
  std::vector<int> leads_to_;    // per value: the one output, or kNowhere, kManyPlaces
  std::vector<bool> reads_sum_;  // per value: whether it depends on a sum of earlier microbatches
  std::vector<bool> is_weight_;  // per equation
};

/// The tasks of one item run in the order of the microbatches, but nothing orders the tasks of two
/// items. So only the item that writes a sum may read it.
void check_sums(const Stages& stages) {
  const Function& body = stages.body;
  for (std::size_t k = 0; k < stages.parts.num_carry; ++k) {
    const std::vector<Item>& readers = stages.users[body.inputs[stages.parts.num_consts + k]];
    const Item& writer = stages.home_of(body.outputs[k])->item;
    require(std::all_of(readers.begin(), readers.end(),
                        [&](const Item& reader) { return reader == writer; }),
            "a sum is read by the tasks that write it");
  }
}

}  // namespace

void split_backward(Stages& stages, const std::vector<bool>& is_split) {
  for (std::size_t stage = 0; stage < is_split.size(); ++stage) {
    if (is_split[stage]) Splitter(stages, static_cast<std::int64_t>(stage)).split();
  }
}

void find_users(Stages& stages) {
  const Function& body = stages.body;
  stages.users.assign(body.values.size(), {});
  // For equations that their users compute, these are the items that need their results.
  for (std::size_t i = body.equations.size(); i-- > 0;) {
    const Home& home = stages.homes[i];
    if (home.kind == Home::Kind::hoisted) continue;
    std::vector<Item> readers;
    if (home.kind == Home::Kind::item) {
      readers = {home.item};
    } else {
      for (ValueId id : body.equations[i].results) {
        readers.insert(readers.end(), stages.users[id].begin(), stages.users[id].end());
      }
    }
    for (ValueId id : body.equations[i].operands) {
      std::vector<Item>& users = stages.users[id];
      users.insert(users.end(), readers.begin(), readers.end());
      std::sort(users.begin(), users.end());
      users.erase(std::unique(users.begin(), users.end()), users.end());
    }
  }
  check_sums(stages);
}

}  // namespace tessera::pipeline
