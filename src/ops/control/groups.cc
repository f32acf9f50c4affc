// Finds which group of devices computes each equation and value.
#include <algorithm>

#include <tessera/error.h>

#include "ir/text.h"
#include "ops/control/mpmd.h"
#include "ops/ops.h"

namespace tessera::ops {

namespace {

class GroupFinder {
 public:
  explicit GroupFinder(const Function& function) : f_(function) {
    groups_.of_equation.assign(f_.equations.size(), Groups::kNone);
    groups_.of_value.assign(f_.values.size(), Groups::kNone);
  }

  Groups find() {
    const bool has_groups =
        std::any_of(f_.equations.begin(), f_.equations.end(),
                    [](const Equation& e) { return is_task(e) || is_transfer(e); });
    if (!has_groups) return std::move(groups_);
    for (std::size_t i = 0; i < f_.equations.size(); ++i) {
      const Equation& equation = f_.equations[i];
      const int group = group_of(equation);
      groups_.of_equation[i] = group;
      groups_.count = std::max(groups_.count, group + 1);
      for (ValueId id : equation.results) groups_.of_value[id] = group;
    }
    give_free_values_to_their_users();
    return std::move(groups_);
  }

 private:
  /// A value that is computed from inputs and constants alone belongs to the group that reads it,
  /// if only one group does.
  void give_free_values_to_their_users() {
    constexpr int kUnused = -2;
    std::vector<int> user(f_.values.size(), kUnused);
    for (std::size_t i = f_.equations.size(); i-- > 0;) {
      const Equation& equation = f_.equations[i];
      int& group = groups_.of_equation[i];
      if (group == Groups::kNone) {
        group = std::max(user[equation.results[0]], Groups::kNone);
        groups_.of_value[equation.results[0]] = group;
      }
      const int reader =
          is_transfer(equation) ? static_cast<int>(equation.attributes.integer("from")) : group;
      for (ValueId id : equation.operands) {
        user[id] = user[id] == kUnused || user[id] == reader ? reader : Groups::kNone;
      }
    }
  }

  int group_of(const Equation& equation) {
    if (is_task(equation)) {
      const auto group = static_cast<int>(equation.attributes.integer("group"));
      check_operands(equation, group);
      check_shares(equation);
      return group;
    }
    if (is_transfer(equation)) {
      const auto from = static_cast<int>(equation.attributes.integer("from"));
      check_operands(equation, from);
      groups_.count = std::max(groups_.count, from + 1);
      return static_cast<int>(equation.attributes.integer("to"));
    }
    const bool is_free = is_view(equation) || equation.op == &constant_op;
    check(is_free, equation, "an equation of several groups of devices is outside of tasks");
    return equation.operands.empty() ? Groups::kNone : groups_.of_value[equation.operands[0]];
  }

  void check_operands(const Equation& equation, int group) const {
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      const int home = groups_.of_value[equation.operands[i]];
      check(home == Groups::kNone || home == group, equation,
            "operand " + std::to_string(i) + " lives in group " + std::to_string(home) +
                " and is read in group " + std::to_string(group));
    }
  }

  void check_shares(const Equation& equation) const {
    const ir::Ints& shares = equation.attributes.ints("shares");
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (shares[i] < 0) continue;
      const ValueId operand = equation.operands[static_cast<std::size_t>(shares[i])];
      check(f_.values[operand].sharding == f_.values[equation.results[i]].sharding, equation,
            "result " + std::to_string(i) + " shares memory that has another sharding");
    }
  }

  void check(bool holds, const Equation& equation, const std::string& rule) const {
    if (!holds) throw InternalError(rule + ": " + ir::print(f_, equation));
  }

  const Function& f_;
  Groups groups_;
};

}  // namespace

Groups groups_of(const Function& function) { return GroupFinder(function).find(); }

}  // namespace tessera::ops
