// The rules of partitioned programs; see partition.h.
#include <algorithm>

#include <tessera/error.h>

#include "ir/bodies.h"
#include "ir/text.h"
#include "ops/control/mpmd.h"
#include "ops/ops.h"
#include "partition/flatten.h"
#include "partition/moves.h"
#include "partition/partition.h"
#include "partition/project.h"

namespace tessera::partition {

using ir::Equation;
using ir::Function;
using ir::ValueId;

namespace {

class Verifier {
 public:
  /// Nested functions may take and give sums over devices in fast numerics.
  Verifier(const Function& function, std::string_view after, bool is_nested)
      : function_(function),
        after_(after),
        may_pass_sums_(is_nested && function.numerics != Numerics::exact),
        atoms_(atoms_of(function.mesh)) {}

  void run() {
    for (std::size_t id = 0; id < function_.values.size(); ++id) {
      check_sharding(static_cast<ValueId>(id));
    }
    is_order_free_.assign(function_.values.size(), false);
    uses_.assign(function_.values.size(), 0);
    reduction_.assign(function_.values.size(), "");
    for (ValueId id : function_.inputs) {
      check(may_pass_sums_ || function_.sharding(id).partial.empty(), "an input is partial");
      set_sum(id);
    }
    for (const Equation& equation : function_.equations) {
      equation_ = &equation;
      for (ValueId id : equation.operands) ++uses_[id];
      if (const auto kind = kind_of(*equation.op)) {
        check_collective(equation, *kind);
      } else {
        check_equation(equation);
      }
    }
    equation_ = nullptr;
    for (ValueId id : function_.outputs) {
      check(may_pass_sums_ || function_.sharding(id).partial.empty(), "an output is partial");
      check(function_.sharding(id).windows.empty(), "the tiles of an output are windows");
    }
    if (function_.numerics == Numerics::exact) check_uses();
  }

 private:
  void check_uses() {
    for (const Equation& equation : function_.equations) {
      equation_ = &equation;
      for (ValueId id : equation.results) {
        check(function_.sharding(id).partial.empty() || uses_[id] == 1,
              "a partial value is resolved by exactly one collective");
      }
    }
  }

  /// Whether the value may be a sum over devices although no reducing equation made it.
  void set_sum(ValueId id) {
    is_order_free_[id] = true;
    reduction_[id] = name(ops::Reduction::sum);
  }

  void check(bool holds, const std::string& rule) const {
    if (holds) return;
    std::string text = rule + ", after " + std::string(after_);
    if (equation_ != nullptr) text += ": " + ir::print(function_, *equation_);
    throw InternalError(text);
  }

  void check_sharding(ValueId id) const {
    const std::optional<Sharding>& sharding = function_.values[id].sharding;
    const std::string value = "value %" + std::to_string(id);
    check(sharding.has_value(), value + " has no sharding");
    check(sharding->dims.size() == function_.type(id).shape.size(), value + " has another rank");
    AtomList used = used_atoms(*sharding);
    std::sort(used.begin(), used.end());
    check(std::adjacent_find(used.begin(), used.end()) == used.end(),
          value + " uses an atom twice");
    check(used.empty() || used.back() < atoms_.size(), value + " uses an atom of no axis");
  }

  void check_collective(const Equation& equation, MoveKind kind) {
    check(equation.operands.size() == equation.results.size() && !equation.operands.empty(),
          "a collective has a result per operand");
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      const ValueId operand = equation.operands[i];
      const ValueId result = equation.results[i];
      check(function_.type(operand) == function_.type(result), "a collective keeps global types");
      if (const Sharding& to = function_.sharding(result); !to.windows.empty()) {
        check(kind_to_windows(function_.mesh, function_.type(operand), function_.sharding(operand),
                              to) == kind,
              "operand " + std::to_string(i) + " cannot get windows like this");
        continue;
      }
      check(is_allowed(kind, function_.sharding(operand), function_.sharding(result), atoms_,
                       is_order_free_[operand]),
            "operand " + std::to_string(i) + " moves in a way that its collective cannot");
      is_order_free_[result] = is_order_free_[operand];
      reduction_[result] = reduction_[operand];
      if (is_reducing(kind)) {
        check(equation.attributes.get<std::string>("reduction") == reduction_[operand],
              "a partial value is resolved by the reduction that made it");
      }
    }
  }

  /// Operands and results of a body have the same shardings inside and outside. A scanned dimension
  /// is whole.
  void check_edge(ValueId outside, const Function& body, ValueId inside) const {
    Sharding sharding = function_.sharding(outside);
    if (function_.type(outside).rank() > body.type(inside).rank()) {
      check(sharding.dims[0].empty(), "a scanned dimension is split");
      sharding.dims.erase(sharding.dims.begin());
    }
    check(sharding == body.sharding(inside),
          "an operand or result of a body has another sharding inside");
  }

  void check_control(const Equation& equation) {
    if (function_.numerics != Numerics::exact) {
      for (ValueId id : equation.results) set_sum(id);
    }
    const ir::BodyFlow flow = ir::body_flow(equation).value();
    const std::vector<const Function*> bodies = bodies_of(equation);
    for (std::size_t b = 0; b < bodies.size(); ++b) {
      const Function& body = *bodies[b];
      Verifier(body, after_, true).run();
      for (std::size_t i = 0; i < body.inputs.size(); ++i) {
        check_edge(equation.operands[flow.operand_of(i)], body, body.inputs[i]);
      }
      for (std::size_t i = 0; i < body.outputs.size() && b != flow.condition; ++i) {
        check_edge(equation.results[i], body, body.outputs[i]);
      }
    }
  }

  void check_passed_on(const Equation& equation) {
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      check(function_.sharding(equation.operands[i]) == function_.sharding(equation.results[i]),
            "a barrier or transfer changes a sharding");
      check(function_.sharding(equation.operands[i]).partial.empty(),
            "a barrier or transfer has a partial value");
    }
  }

  /// A pad makes the windows that its users read from windows of its operand.
  void check_padded(const Equation& equation) {
    const Sharding& result = function_.sharding(equation.results[0]);
    const std::optional<Sharding> from = padded_from(function_, equation, result);
    check(from && function_.sharding(equation.operands[0]) == *from,
          "the tiles of a result are windows that the equation cannot make");
  }

  void check_equation(const Equation& equation) {
    check(equation.op != &ops::sharding_constraint_op, "constraints are gone");
    check(equation.op != &ops::inspect_sharding_op, "inspections are gone");
    if (is_control(equation)) return check_control(equation);
    const bool passes_on =
        equation.op == &ops::optimization_barrier_op || ops::is_transfer(equation);
    if (passes_on) return check_passed_on(equation);
    if (!function_.sharding(equation.results[0]).windows.empty()) return check_padded(equation);
    const EquationFactors factors = factors_of(function_, equation);
    Assignment assignment(factors.rule.factors.size());
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      const Sharding& sharding = function_.sharding(equation.operands[i]);
      Assignment own(assignment.size());
      project_operand(factors, i, sharding, atoms_, own);
      join(own, assignment);
    }
    for (std::size_t i = 0; i < equation.results.size(); ++i) {
      Assignment own(assignment.size());
      project(factors, factors.rule.results[i], function_.sharding(equation.results[i]), atoms_,
              own);
      join(own, assignment);
    }
    Assignment legal = assignment;
    legalise(factors, atoms_, function_.grains, legal);
    check(legal == assignment, "a factor is split in a way that is not allowed");
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      Sharding held = function_.sharding(equation.operands[i]);
      held.partial.clear();
      check(may_be_read_as(needed_of(factors, i, atoms_, assignment), held),
            "operand " + std::to_string(i) + " does not agree with the factors");
    }
    const AtomList sums = check_sums(equation);
    AtomList partial = partial_atoms(factors, assignment);
    partial.insert(partial.end(), sums.begin(), sums.end());
    if (!sums.empty()) std::sort(partial.begin(), partial.end());
    for (std::size_t i = 0; i < equation.results.size(); ++i) {
      Sharding made = back_project(factors.rule.results[i], assignment);
      made.partial = partial;
      check(made == function_.sharding(equation.results[i]),
            "result " + std::to_string(i) + " does not agree with the factors");
      is_order_free_[equation.results[i]] = factors.is_order_free;
      reduction_[equation.results[i]] = name(factors.rule.reduction);
    }
  }

  /// The atoms over which operands of the equation are sums: none in exact numerics. In fast
  /// numerics all operands of one linear group are sums over the same atoms, and no other operands
  /// are.
  AtomList check_sums(const Equation& equation) const {
    if (is_zero(equation)) return function_.sharding(equation.results[0]).partial;
    AtomList partial;
    std::vector<std::size_t> sums;
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      const AtomList& own = function_.sharding(equation.operands[i]).partial;
      if (own.empty()) continue;
      check(function_.numerics != Numerics::exact, "operand " + std::to_string(i) + " is partial");
      check(sums.empty() || own == partial, "operands are sums over different atoms");
      partial = own;
      sums.push_back(i);
    }
    const auto groups = linear_groups(function_, equation);
    check(sums.empty() || std::find(groups.begin(), groups.end(), sums) != groups.end(),
          "the equation is not linear in what is partial");
    return partial;
  }

  bool is_zero(const Equation& equation) const {
    return function_.numerics != Numerics::exact && equation.op == &ops::constant_op &&
           equation.attributes.get<double>("value") == 0;
  }

  /// Adds how one tensor splits the factors. Tensors that disagree are found by comparing
  /// afterwards.
  static void join(const Assignment& own, Assignment& assignment) {
    for (std::size_t factor = 0; factor < own.size(); ++factor) {
      if (own[factor].size() > assignment[factor].size()) assignment[factor] = own[factor];
    }
  }

  const Function& function_;
  std::string_view after_;
  bool may_pass_sums_;
  const std::vector<Atom> atoms_;
  const Equation* equation_ = nullptr;
  std::vector<bool> is_order_free_;
  std::vector<int> uses_;
  std::vector<std::string> reduction_;
};

}  // namespace

void verify_partitioned(const Function& function, std::string_view after) {
  Verifier(function, after, false).run();
  ops::groups_of(function);  // throws if the groups cannot run it
}

}  // namespace tessera::partition
