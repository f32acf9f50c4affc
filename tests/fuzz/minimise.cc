// Minimises a failing case greedily: removes whatever can go while the failure stays.
#include <algorithm>
#include <chrono>

#include "ops/control/control.h"
#include "ops/ops.h"
#include "tests/fuzz/check.h"

namespace tessera::fuzz {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;

template <typename T>
void erase_at(std::vector<T>& items, std::size_t i) {
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(i));
}

/// The number of equations, including those of nested functions.
std::size_t size_of(const Function& function) {
  std::size_t size = 0;
  for_each_equation(function, [&](const Equation&, const auto&) { ++size; });
  return size;
}

void rename(Function& function, ValueId from, ValueId to) {
  auto change = [&](ValueId& id) { id = id == from ? to : id; };
  for (Equation& user : function.equations) {
    for (ValueId& id : user.operands) change(id);
  }
  for (ValueId& id : function.outputs) change(id);
}

/// Proposes a smaller function. Returns true if it is accepted.
using Offer = std::function<bool(Function)>;

/// Offers a body without equation i: its results become an operand, an input or a constant.
bool offer_without_equation(const Function& body, std::size_t i, const Offer& offer) {
  const Equation& equation = body.equations[i];
  if (equation.op == &ops::constant_op) return false;
  std::vector<ValueId> candidates = equation.operands;
  candidates.insert(candidates.end(), body.inputs.begin(), body.inputs.end());
  for (ValueId result : equation.results) {
    for (ValueId other : candidates) {
      if (body.type(other) != body.type(result)) continue;
      Function smaller = body;
      rename(smaller, result, other);
      if (offer(std::move(smaller))) return true;
    }
  }
  if (equation.results.size() != 1) return false;
  Function smaller = body;
  const Type& type = body.type(equation.results[0]);
  smaller.equations[i] = {.op = &ops::constant_op,
                          .attributes = {{"dtype", type.dtype},
                                         {"shape", ir::Ints(type.shape)},
                                         {"value", type.dtype == DType::boolean ? 0.0 : 1.0}},
                          .operands = {},
                          .results = equation.results,
                          .span = equation.span};
  return offer(std::move(smaller));
}

/// Replaces equation `i` of `function` by the inlined equations of `callee`.
Function inlined(const Function& function, std::size_t i, const Function& callee,
                 const std::vector<ValueId>& operands) {
  Function result = function;
  const std::vector<Equation> after(function.equations.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                    function.equations.end());
  result.equations.resize(i);
  ir::Builder b(result);
  const std::vector<ValueId> outputs = b.inline_function(callee, operands);
  result.equations.insert(result.equations.end(), after.begin(), after.end());
  for (std::size_t n = 0; n < outputs.size(); ++n) {
    rename(result, function.equations[i].results[n], outputs[n]);
  }
  return result;
}

/// Offers to replace an equation by one of its nested functions, if inputs and outputs match: a
/// branch, a call, or one iteration of a loop that only has carries.
bool offer_inlined(const Function& function, std::size_t i, const Offer& offer) {
  const Equation& equation = function.equations[i];
  std::vector<ValueId> operands = equation.operands;
  if (equation.op == &ops::cond_op) operands.erase(operands.begin());
  for (const Function* body : ir::bodies_of(equation)) {
    bool fits =
        body->inputs.size() == operands.size() && body->outputs.size() == equation.results.size();
    for (std::size_t n = 0; fits && n < operands.size(); ++n) {
      fits = body->type(body->inputs[n]) == function.type(operands[n]);
    }
    for (std::size_t n = 0; fits && n < equation.results.size(); ++n) {
      fits = body->type(body->outputs[n]) == function.type(equation.results[n]);
    }
    if (fits && offer(inlined(function, i, *body, operands))) return true;
  }
  return false;
}

/// Offers functions in which equations with bodies do less.
bool offer_smaller(const Function& function, bool is_nested, const Offer& offer) {
  for (std::size_t i = function.equations.size(); i-- > 0;) {
    const Equation& equation = function.equations[i];
    if (is_nested && offer_without_equation(function, i, offer)) return true;
    if (equation.op->bodies != nullptr && offer_inlined(function, i, offer)) return true;
    for (const auto& [name, value] : equation.attributes.items()) {
      const ir::Bodies* bodies = std::get_if<ir::Bodies>(&value);
      for (std::size_t n = 0; bodies != nullptr && n < bodies->functions.size(); ++n) {
        const auto change = [&](Function body) {
          ir::Bodies changed = *bodies;
          changed.functions[n] = std::make_shared<const Function>(std::move(body));
          Function smaller = function;
          smaller.equations[i].attributes.set(name, changed);
          return offer(std::move(smaller));
        };
        if (offer_smaller(*bodies->functions[n], true, change)) return true;
      }
    }
  }
  return false;
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
      is_smaller = shrink_bodies() || is_smaller;
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
    return size_of(smaller.function) < size_of(best_.function) && keeps_failing(std::move(smaller));
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
      if (i >= best_.function.equations.size()) continue;  // removed as dead code
      is_smaller =
          keeps_failing_with_less(bypassed(i)) || keeps_failing_with_less(cut(i)) || is_smaller;
    }
    return is_smaller;
  }

  /// The users of an equation's result use its operand of the same type instead.
  Case bypassed(std::size_t i) const {
    Case smaller = best_;
    Function& function = smaller.function;
    const Equation equation = function.equations[i];
    for (ValueId operand : equation.operands) {
      if (equation.results.size() != 1) break;
      if (function.type(operand) != function.type(equation.results[0])) continue;
      rename(function, equation.results[0], operand);
      break;
    }
    function = ir::without_dead_code(function);
    return smaller;
  }

  /// The results of an equation become inputs, with the data that they had.
  Case cut(std::size_t i) const {
    Case smaller = best_;
    Function& function = smaller.function;
    const Equation equation = function.equations[i];
    Case results = best_;
    results.function.outputs = equation.results;
    testing::Arrays data = testing::run_reference(program_of(results), best_.inputs);
    erase_at(function.equations, i);
    for (std::size_t n = 0; n < equation.results.size(); ++n) {
      function.inputs.push_back(equation.results[n]);
      smaller.placed.inputs.push_back(replicated_sharding(data[n].type().rank()));
      smaller.inputs.push_back(std::move(data[n]));
      if (!smaller.is_batched.empty()) smaller.is_batched.push_back(true);
      smaller.placed.is_storage.push_back(false);
    }
    function = ir::without_dead_code(function);
    return smaller;
  }

  bool shrink_bodies() {
    bool is_smaller = false;
    const Offer take = [&](Function function) {
      Case smaller = best_;
      smaller.function = ir::without_dead_code(function);
      return keeps_failing_with_less(std::move(smaller));
    };
    while (has_time() && offer_smaller(Function(best_.function), false, take)) is_smaller = true;
    return is_smaller;
  }

  bool drop_inputs() {
    bool is_smaller = false;
    for (std::size_t i = best_.function.inputs.size(); i-- > 0;) {
      const ValueId id = best_.function.inputs[i];
      const Function& function = best_.function;
      bool is_used = std::count(function.outputs.begin(), function.outputs.end(), id) != 0;
      for (const Equation& equation : function.equations) {
        is_used = is_used || std::count(equation.operands.begin(), equation.operands.end(), id);
      }
      if (is_used) continue;
      Case smaller = best_;
      erase_at(smaller.function.inputs, i);
      erase_at(smaller.inputs, i);
      erase_at(smaller.placed.inputs, i);
      erase_at(smaller.placed.is_storage, i);
      if (!smaller.is_batched.empty()) erase_at(smaller.is_batched, i);
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
