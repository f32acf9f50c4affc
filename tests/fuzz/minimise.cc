// Makes a failing case small, greedily: whatever can go without mending it goes.
#include <algorithm>
#include <chrono>

#include "tests/fuzz/check.h"

namespace tessera::fuzz {

namespace {

using ir::Function;
using ir::ValueId;

template <typename T>
void erase_at(std::vector<T>& items, std::size_t i) {
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(i));
}

class Minimiser {
 public:
  Minimiser(Case failing, const std::string& rule, const Check& recheck, double seconds)
      : best_(std::move(failing)),
        rule_(rule),
        recheck_(recheck),
        deadline_(std::chrono::steady_clock::now() +
                  std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                      std::chrono::duration<double>(seconds))) {}

  Case run() {
    bool is_smaller = true;
    while (is_smaller && has_time()) {
      is_smaller = drop_outputs();
      is_smaller = drop_equations() || is_smaller;
      is_smaller = drop_inputs() || is_smaller;
      is_smaller = drop_shardings() || is_smaller;
    }
    return std::move(best_);
  }

 private:
  bool has_time() const { return std::chrono::steady_clock::now() < deadline_; }

  bool keeps_failing(Case smaller) {
    if (!has_time()) return false;
    const auto failure = recheck_(smaller);
    if (!failure || failure->rule != rule_) return false;
    best_ = std::move(smaller);
    return true;
  }

  bool keeps_failing_with_less(Case smaller) {
    return smaller.function.equations.size() < best_.function.equations.size() &&
           keeps_failing(std::move(smaller));
  }

  bool drop_outputs() {
    bool is_smaller = false;
    for (std::size_t i = best_.function.outputs.size(); i-- > 0;) {
      if (best_.function.outputs.size() == 1) break;
      Case smaller = best_;
      erase_at(smaller.function.outputs, i);
      erase_at(smaller.placed.outputs, i);
      erase_at(smaller.placed.output_alias, i);
      smaller.function = ir::without_dead_code(smaller.function);
      is_smaller = keeps_failing(std::move(smaller)) || is_smaller;
    }
    return is_smaller;
  }

  bool drop_equations() {
    bool is_smaller = false;
    for (std::size_t i = best_.function.equations.size(); i-- > 0;) {
      if (i >= best_.function.equations.size()) continue;  // went as dead code
      is_smaller =
          keeps_failing_with_less(bypassed(i)) || keeps_failing_with_less(cut(i)) || is_smaller;
    }
    return is_smaller;
  }

  /// The users of an equation's result use its operand of the same type instead.
  Case bypassed(std::size_t i) const {
    Case smaller = best_;
    Function& function = smaller.function;
    const ir::Equation equation = function.equations[i];
    for (ValueId operand : equation.operands) {
      if (equation.results.size() != 1) break;
      if (function.type(operand) != function.type(equation.results[0])) continue;
      auto rename = [&](ValueId& id) { id = id == equation.results[0] ? operand : id; };
      for (ir::Equation& user : function.equations) {
        for (ValueId& id : user.operands) rename(id);
      }
      for (ValueId& id : function.outputs) rename(id);
      break;
    }
    function = ir::without_dead_code(function);
    return smaller;
  }

  /// The results of an equation become inputs with the data that they had.
  Case cut(std::size_t i) const {
    Case smaller = best_;
    Function& function = smaller.function;
    const ir::Equation equation = function.equations[i];
    Function results = function;
    results.outputs = equation.results;
    testing::Arrays data = testing::run_reference(results, best_.inputs);
    erase_at(function.equations, i);
    for (std::size_t n = 0; n < equation.results.size(); ++n) {
      function.inputs.push_back(equation.results[n]);
      smaller.inputs.push_back(std::move(data[n]));
      smaller.placed.inputs.push_back(
          replicated_sharding(function.type(equation.results[n]).rank()));
      smaller.placed.is_storage.push_back(false);
    }
    function = ir::without_dead_code(function);
    return smaller;
  }

  bool drop_inputs() {
    bool is_smaller = false;
    for (std::size_t i = best_.function.inputs.size(); i-- > 0;) {
      const ValueId id = best_.function.inputs[i];
      const Function& function = best_.function;
      bool is_used = std::count(function.outputs.begin(), function.outputs.end(), id) != 0;
      for (const ir::Equation& equation : function.equations) {
        is_used = is_used || std::count(equation.operands.begin(), equation.operands.end(), id);
      }
      if (is_used) continue;
      Case smaller = best_;
      erase_at(smaller.function.inputs, i);
      erase_at(smaller.inputs, i);
      erase_at(smaller.placed.inputs, i);
      erase_at(smaller.placed.is_storage, i);
      for (int& alias : smaller.placed.output_alias) {
        if (alias == static_cast<int>(i)) alias = -1;
        if (alias > static_cast<int>(i)) --alias;
      }
      smaller.function = ir::without_dead_code(smaller.function);
      is_smaller = keeps_failing(std::move(smaller)) || is_smaller;
    }
    return is_smaller;
  }

  bool drop_shardings() {
    bool is_smaller = false;
    for (std::size_t i = 0; i < best_.placed.inputs.size(); ++i) {
      Case smaller = best_;
      Sharding& sharding = smaller.placed.inputs[i];
      sharding = replicated_sharding(static_cast<std::int64_t>(sharding.dims.size()));
      smaller.placed.is_storage[i] = false;
      const bool is_same = sharding == best_.placed.inputs[i] && !best_.placed.is_storage[i];
      is_smaller = (!is_same && keeps_failing(std::move(smaller))) || is_smaller;
    }
    for (std::size_t i = 0; i < best_.placed.outputs.size(); ++i) {
      Case smaller = best_;
      smaller.placed.outputs[i].reset();
      smaller.placed.output_alias[i] = -1;
      const bool is_same = !best_.placed.outputs[i] && best_.placed.output_alias[i] < 0;
      is_smaller = (!is_same && keeps_failing(std::move(smaller))) || is_smaller;
    }
    return is_smaller;
  }

  Case best_;
  std::string rule_;
  const Check& recheck_;
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace

Case minimised(Case failing, const std::string& rule, const Check& recheck, double seconds) {
  return Minimiser(std::move(failing), rule, recheck, seconds).run();
}

}  // namespace tessera::fuzz
