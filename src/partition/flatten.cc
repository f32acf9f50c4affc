#include "partition/flatten.h"

#include <tessera/error.h>

#include "ir/bodies.h"
#include "ops/body_rules.h"
#include "ops/control/mpmd.h"
#include "ops/ops.h"

namespace tessera::partition {

using ir::Equation;
using ir::Function;
using ir::ValueId;

bool is_control(const Equation& equation) {
  return equation.op->bodies != nullptr && equation.op->bodies->callee == nullptr;
}

namespace {

/// A nested function as a view of the flat one.
struct Body {
  const Function* function;
  std::size_t first_value;
  ValueId input(std::size_t i) const {
    return static_cast<ValueId>(first_value + function->inputs[i]);
  }
  ValueId output(std::size_t i) const {
    return static_cast<ValueId>(first_value + function->outputs[i]);
  }
};

class Flattener {
 public:
  FlatFunction run(const Function& function) {
    Function& flat = result_.function;
    flat = ir::empty_like(function);
    flat.inputs = function.inputs;
    flat.outputs = function.outputs;
    add_block(function);
    return std::move(result_);
  }

 private:
  std::size_t add_block(const Function& function) {
    Function& flat = result_.function;
    const std::size_t number = result_.blocks.size();
    const FlatFunction::Block block{flat.values.size(), flat.equations.size()};
    result_.blocks.push_back(block);
    flat.values.insert(flat.values.end(), function.values.begin(), function.values.end());
    result_.is_input.resize(flat.values.size(), false);
    for (ValueId id : function.inputs) result_.is_input[block.first_value + id] = true;
    flat.equations.reserve(flat.equations.size() + function.equations.size());
    for (Equation equation : function.equations) {
      for (ValueId& id : equation.operands) id += static_cast<ValueId>(block.first_value);
      for (ValueId& id : equation.results) id += static_cast<ValueId>(block.first_value);
      flat.equations.push_back(std::move(equation));
    }
    for (std::size_t i = 0; i < function.equations.size(); ++i) {
      join_group(flat.equations[block.first_equation + i]);
      add_bodies(block.first_equation + i);
    }
    return number;
  }

  void add_bodies(std::size_t index) {
    if (const Equation& here = result_.function.equations[index];
        here.op != &ops::optimization_barrier_op && bodies_of(here).empty()) {
      return;
    }
    // A copy, because more equations will be appended.
    const Equation equation = result_.function.equations[index];
    if (equation.op == &ops::optimization_barrier_op) {
      for (std::size_t i = 0; i < equation.operands.size(); ++i) {
        join(equation.operands[i], equation.results[i]);
      }
      return;
    }
    const std::vector<const Function*> functions = bodies_of(equation);
    if (functions.empty()) return;
    require(is_control(equation), "calls are inlined before partitioning");
    std::vector<Body> bodies;
    for (std::size_t i = 0; i < functions.size(); ++i) {
      const std::size_t block = add_block(*functions[i]);
      result_.block_of[{index, i}] = block;
      bodies.push_back({functions[i], result_.blocks[block].first_value});
    }
    join_bodies(equation, ir::body_flow(equation).value(), bodies);
    if (ops::is_task(equation)) join_shared(equation, bodies[0]);
  }

  /// Constraints of the same group get the same sharding.
  void join_group(const Equation& equation) {
    if (equation.op != &ops::sharding_constraint_op || !equation.attributes.has("group")) return;
    const ValueId result = equation.results[0];
    const auto [first, is_new] = groups_.emplace(equation.attributes.integer("group"), result);
    const ir::Function& flat = result_.function;
    const bool is_alike = flat.type(first->second).shape == flat.type(result).shape;
    if (!is_new && is_alike) join(first->second, result);
  }

  void join(ValueId whole, ValueId slice) { result_.identities.push_back({whole, slice}); }

  void join_bodies(const Equation& equation, const ir::BodyFlow& flow,
                   const std::vector<Body>& bodies) {
    for (std::size_t b = 0; b < bodies.size(); ++b) {
      const Body& body = bodies[b];
      for (std::size_t i = flow.num_choosing; i < equation.operands.size(); ++i) {
        join(equation.operands[i], body.input(i - flow.num_choosing));
      }
      if (b == flow.condition) continue;
      for (std::size_t i = 0; i < equation.results.size(); ++i) {
        join(equation.results[i], body.output(i));
        if (i < flow.num_carry) join(body.input(flow.first_carry + i), body.output(i));
      }
    }
  }

  /// Joins a task's results and the operands whose memory they take over.
  void join_shared(const Equation& equation, const Body& body) {
    const ir::Ints& shares = equation.attributes.ints("shares");
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (shares[i] >= 0) join(body.input(static_cast<std::size_t>(shares[i])), body.output(i));
    }
  }

  FlatFunction result_;
  std::map<std::int64_t, ValueId> groups_;  // the first member of each
};

}  // namespace

FlatFunction flatten(const Function& function) { return Flattener().run(function); }

}  // namespace tessera::partition
