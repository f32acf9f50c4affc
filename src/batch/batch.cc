#include "batch/batch.h"

#include <algorithm>

#include <tessera/error.h>

#include "batch/batcher.h"
#include "ops/axis/axis.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::batch {

namespace {

using ir::Equation;
using ir::Function;
using ir::kNoValue;
using ir::ValueId;

class Batching {
 public:
  Batching(Batcher& batcher, const Function& function, Function& result)
      : batcher_(batcher),
        function_(function),
        b_(result),
        ids_(function.values.size(), kNoValue),
        is_batched_(function.values.size(), false) {}

  void add_inputs(const std::vector<bool>& is_batched_input) {
    for (std::size_t i = 0; i < function_.inputs.size(); ++i) {
      const ValueId id = function_.inputs[i];
      Type type = function_.type(id);
      is_batched_[id] = is_batched_input[i];
      if (is_batched_[id]) type.shape = ops::with_first(batcher_.size(), type.shape);
      ids_[id] = b_.add_input(std::move(type));
    }
  }

  void visit(const Equation& equation) {
    b_.set_span(equation.span);
    ops::BatchContext c{.b = b_,
                        .equation = equation,
                        .types = ir::operand_types(function_, equation),
                        .operands = {},
                        .is_batched = {},
                        .size = batcher_.size(),
                        .axis = batcher_.axis(),
                        .is_result_batched = std::vector<bool>(equation.results.size(), true)};
    for (ValueId id : equation.operands) {
      c.operands.push_back(ids_[id]);
      c.is_batched.push_back(is_batched_[id]);
    }
    const bool is_reached = std::count(c.is_batched.begin(), c.is_batched.end(), true) > 0 ||
                            batcher_.is_over_axis(equation);
    const Results results =
        is_reached ? emit(c)
                   : Results{.ids = b_.emit_all(*equation.op, equation.attributes, c.operands),
                             .is_batched = std::vector<bool>(equation.results.size(), false)};
    require(results.ids.size() == equation.results.size(), "a batch rule gives every result");
    for (std::size_t i = 0; i < results.ids.size(); ++i) {
      ids_[equation.results[i]] = results.ids[i];
      is_batched_[equation.results[i]] = results.is_batched[i];
    }
  }

  /// Sets the outputs and returns which of them are batched.
  std::vector<bool> finish(const std::vector<bool>& must_be_batched) {
    std::vector<ValueId> outputs;
    std::vector<bool> is_output_batched;
    for (std::size_t i = 0; i < function_.outputs.size(); ++i) {
      const ValueId id = function_.outputs[i];
      const bool must_repeat = i < must_be_batched.size() && must_be_batched[i] && !is_batched_[id];
      outputs.push_back(must_repeat ? ops::repeat(b_, ids_[id], batcher_.size()) : ids_[id]);
      is_output_batched.push_back(must_repeat || is_batched_[id]);
    }
    b_.set_outputs(std::move(outputs));
    return is_output_batched;
  }

 private:
  Results emit(ops::BatchContext& c) {
    const ops::BatchRule& rule = c.equation.op->batch;
    if (!rule.has_rule()) {
      throw UserError({.what = "vmap: " + *c.equation.op->name + " cannot be batched",
                       .where = c.equation.span,
                       .found = *c.equation.op->name + ": " + rule.why_not(),
                       .wanted = "ops with a batch rule",
                       .cure = "take it out of the mapped function"});
    }
    if (rule.is_inside()) return batcher_.inside(c);
    std::vector<ValueId> ids = rule(c);
    return {std::move(ids), c.is_result_batched};
  }

  Batcher& batcher_;
  const Function& function_;
  ir::Builder b_;
  std::vector<ValueId> ids_;      // per value of `function_`: its id in the new function
  std::vector<bool> is_batched_;  // per value of `function_`
};

/// Finds which results of an equation are batched, for equations where the default (all of them if
/// any operand is) does not hold. Returns false if it holds.
bool find_results(const Equation& equation, const ops::BatchAxis& axis, std::size_t n,
                  const std::vector<ir::Bits>& values, std::vector<ir::Bits>& results) {
  if (equation.op == &ops::optimization_barrier_op) {
    for (std::size_t i = 0; i < results.size(); ++i) results[i] = values[equation.operands[i]];
    return true;
  }
  if (axis.name.empty() || !ops::is_over_axis(equation, axis.name)) return false;
  if (ops::is_same_for_all(equation)) return true;
  for (ir::Bits& result : results) result.add(n);
  return true;
}

}  // namespace

Batcher::Batcher(std::int64_t size, const ops::BatchAxis& axis)
    : size_(size),
      axis_(axis),
      reach_(
          {.passes = {},
           .special = [&axis](const Equation& equation, std::size_t n,
                              const std::vector<ir::Bits>& values, std::vector<ir::Bits>& results) {
             return find_results(equation, axis, n, values, results);
           }}) {}

Batched Batcher::function(const Function& function, const Marks& is_batched_input,
                          const Marks& must_be_batched) {
  Batched batched{.function = ir::empty_like(function), .is_output_batched = {}};
  Batching batching(*this, function, batched.function);
  batching.add_inputs(is_batched_input);
  for (const Equation& equation : function.equations) batching.visit(equation);
  batched.is_output_batched = batching.finish(must_be_batched);
  return batched;
}

BatchedBody Batcher::body(const FunctionPtr& function, const Marks& is_batched_input,
                          const Marks& must_be_batched) {
  Done& done = done_[{function.get(), is_batched_input, must_be_batched}];
  if (done.function == nullptr) {
    Batched batched = this->function(*function, is_batched_input, must_be_batched);
    done = {.function = function,
            .batched = {.function = std::make_shared<const Function>(std::move(batched.function)),
                        .outputs = std::move(batched.is_output_batched)}};
  }
  return done.batched;
}

Marks Batcher::operands_inside(const Equation& equation, const Marks& operands) {
  return reach_.marked_operands(equation, ir::body_flow(equation).value(), operands);
}

Marks Batcher::results_of(const Equation& equation, const Marks& operands) {
  return reach_.marked_results(equation, ir::body_flow(equation).value(), operands);
}

bool Batcher::is_over_axis(const Equation& equation) {
  if (axis_.name.empty()) return false;
  if (ops::is_over_axis(equation, axis_.name)) return true;
  const std::vector<FunctionPtr> bodies = ir::shared_bodies_of(equation);
  return std::any_of(bodies.begin(), bodies.end(), [&](const FunctionPtr& body) {
    const auto known = over_axis_.find(body.get());
    if (known != over_axis_.end()) return known->second.second;
    const bool is_over = std::any_of(body->equations.begin(), body->equations.end(),
                                     [&](const Equation& inner) { return is_over_axis(inner); });
    over_axis_.emplace(body.get(), std::pair(body, is_over));
    return is_over;
  });
}

Batched batch(const Function& function, const Marks& is_batched_input, std::int64_t size,
              const Marks& must_be_batched, const ops::BatchAxis& axis) {
  require(is_batched_input.size() == function.inputs.size(), "there is a mark for every input");
  return Batcher(size, axis).function(function, is_batched_input, must_be_batched);
}

}  // namespace tessera::batch
