#include "batch/batch.h"

#include <algorithm>

#include <tessera/error.h>

#include "batch/control.h"
#include "ops/axis/axis.h"
#include "ops/rules.h"

namespace tessera::batch {

namespace {

using ir::Equation;
using ir::Function;
using ir::kNoValue;
using ir::ValueId;

class Batching {
 public:
  Batching(const Function& function, Function& result, std::int64_t size,
           const ops::BatchAxis& axis)
      : function_(function),
        size_(size),
        axis_(axis),
        b_(result),
        ids_(function.values.size(), kNoValue),
        is_batched_(function.values.size(), false) {}

  void add_inputs(const std::vector<bool>& is_batched_input) {
    for (std::size_t i = 0; i < function_.inputs.size(); ++i) {
      const ValueId id = function_.inputs[i];
      Type type = function_.type(id);
      is_batched_[id] = is_batched_input[i];
      if (is_batched_[id]) type.shape = ops::with_first(size_, type.shape);
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
                        .size = size_,
                        .axis = axis_,
                        .is_result_batched = std::vector<bool>(equation.results.size(), true)};
    for (ValueId id : equation.operands) {
      c.operands.push_back(ids_[id]);
      c.is_batched.push_back(is_batched_[id]);
    }
    const bool is_reached = std::count(c.is_batched.begin(), c.is_batched.end(), true) > 0 ||
                            (!axis_.name.empty() && ops::is_over_axis(equation, axis_.name));
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
      outputs.push_back(must_repeat ? ops::repeat(b_, ids_[id], size_) : ids_[id]);
      is_output_batched.push_back(must_repeat || is_batched_[id]);
    }
    b_.set_outputs(std::move(outputs));
    return is_output_batched;
  }

 private:
  static Results emit(ops::BatchContext& c) {
    const ops::BatchRule& rule = c.equation.op->batch;
    if (!rule.has_rule()) {
      throw UserError({.what = "vmap: " + *c.equation.op->name + " cannot be batched",
                       .where = c.equation.span,
                       .found = *c.equation.op->name + ": " + rule.why_not(),
                       .wanted = "ops with a batch rule",
                       .cure = "take it out of the mapped function"});
    }
    if (rule.is_inside()) return batch_inside(c);
    std::vector<ValueId> ids = rule(c);
    return {std::move(ids), c.is_result_batched};
  }

  const Function& function_;
  std::int64_t size_;
  const ops::BatchAxis& axis_;
  ir::Builder b_;
  std::vector<ValueId> ids_;      // in the new function
  std::vector<bool> is_batched_;  // per value of `function_`
};

}  // namespace

Batched batch(const Function& function, const std::vector<bool>& is_batched_input,
              std::int64_t size, const std::vector<bool>& must_be_batched,
              const ops::BatchAxis& axis) {
  require(is_batched_input.size() == function.inputs.size(), "there is a mark for every input");
  Batched batched{.function = ir::empty_like(function), .is_output_batched = {}};
  Batching batching(function, batched.function, size, axis);
  batching.add_inputs(is_batched_input);
  for (const Equation& equation : function.equations) batching.visit(equation);
  batched.is_output_batched = batching.finish(must_be_batched);
  return batched;
}

}  // namespace tessera::batch
