// Batching of equations with nested functions.
#include "ops/control/control.h"

#include <algorithm>

#include <tessera/error.h>

#include "batch/batcher.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::batch {

namespace {

using ir::Builder;
using ir::Function;
using ir::ValueId;
using ops::BatchContext;

FunctionPtr shared(Function function) {
  return std::make_shared<const Function>(std::move(function));
}

Marks all(std::size_t count) { return Marks(count, true); }

/// The operands, where those that are marked get the batch dimension.
std::vector<ValueId> operands_as(BatchContext& c, const Marks& is_batched) {
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    operands.push_back(is_batched[i] ? c.batched(i) : c.operands[i]);
  }
  return operands;
}

/// Selects between rows: `pred` is bool[size].
ValueId select_rows(Builder& b, ValueId pred, ValueId on_true, ValueId on_false) {
  const Shape shape = b.type(on_true).shape;
  return ops::select(b, ops::broadcast_in_dim(b, pred, {0}, shape), on_true, on_false);
}

// --- loops

/// The marks of the carries, out of the marks of all inputs.
Marks carries(const Marks& inputs, std::size_t first_carry, std::size_t num_carry) {
  const auto first = inputs.begin() + static_cast<std::ptrdiff_t>(first_carry);
  return {first, first + static_cast<std::ptrdiff_t>(num_carry)};
}

/// Exchanges the first two dimensions.
ValueId swap_leading(Builder& b, ValueId x) { return ops::move_to_front(b, x, 1); }

Results batch_scan(Batcher& batcher, BatchContext& c) {
  const ops::ScanParts parts = ops::scan_parts(c.equation);
  const Marks inputs = batcher.operands_inside(c.equation, c.is_batched);
  BatchedBody body = batcher.body(c.equation.attributes.shared_body("body"), inputs,
                                  carries(inputs, parts.num_consts, parts.num_carry));
  // A scan slices along dimension 0, so the batch dimension of scanned operands comes second.
  std::vector<ValueId> operands = operands_as(c, inputs);
  for (std::size_t i = parts.first_scanned(); i < operands.size(); ++i) {
    if (inputs[i]) operands[i] = swap_leading(c.b, operands[i]);
  }
  Results results{.ids = {}, .is_batched = std::move(body.outputs)};
  results.ids = ops::scan(c.b, parts, std::move(body.function), std::move(operands));
  for (std::size_t i = parts.num_carry; i < results.ids.size(); ++i) {
    if (results.is_batched[i]) results.ids[i] = swap_leading(c.b, results.ids[i]);
  }
  return results;
}

/// The condition for the batch: whether any element needs another iteration.
Function any_wants_more(Function condition) {
  Builder b(condition);
  b.set_outputs({ops::reduce_or(b, condition.outputs[0], {0})});
  return condition;
}

/// One iteration. Elements that do not need it keep their carry.
Function round_where_wanted(const Function& condition, const Function& body,
                            std::size_t num_consts) {
  Function round = ir::empty_like(body);
  Builder b(round);
  for (ValueId id : body.inputs) b.add_input(body.type(id));
  const std::vector<ValueId> inputs = round.inputs;
  const ValueId wants_more = b.inline_function(condition, inputs)[0];
  std::vector<ValueId> outputs = b.inline_function(body, inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    outputs[i] = select_rows(b, wants_more, outputs[i], inputs[num_consts + i]);
  }
  b.set_outputs(std::move(outputs));
  return round;
}

Results batch_while(Batcher& batcher, BatchContext& c) {
  const ir::Attributes& attributes = c.equation.attributes;
  const std::size_t num_consts = ops::at(attributes.integer("num_consts"));
  // If the condition is batched, so are all carries, because elements stop at different times.
  const Marks inputs = batcher.operands_inside(c.equation, c.is_batched);
  const Marks carry = carries(inputs, num_consts, inputs.size() - num_consts);
  const BatchedBody condition = batcher.body(attributes.shared_body("condition"), inputs);
  const BatchedBody body = batcher.body(attributes.shared_body("body"), inputs, carry);
  FunctionPtr goes_on = condition.function;
  FunctionPtr round = body.function;
  if (condition.outputs[0]) {
    goes_on = shared(any_wants_more(*condition.function));
    round = shared(round_where_wanted(*condition.function, *body.function, num_consts));
  }
  return {.ids = ops::while_loop(c.b, num_consts, std::move(goes_on), std::move(round),
                                 operands_as(c, inputs)),
          .is_batched = carry};
}

// --- branches

/// Batches all branches; `results` tells which results are batched in each of them.
std::vector<FunctionPtr> batch_branches(Batcher& batcher, const BatchContext& c,
                                        const Marks& results) {
  const Marks inputs(c.is_batched.begin() + 1, c.is_batched.end());
  std::vector<FunctionPtr> batched;
  for (const FunctionPtr& branch : ir::shared_bodies_of(c.equation)) {
    batched.push_back(batcher.body(branch, inputs, results).function);
  }
  return batched;
}

/// All elements take the same branch: the cond remains.
Results batch_branch_taken(Batcher& batcher, BatchContext& c) {
  Marks results = batcher.results_of(c.equation, c.is_batched);
  std::vector<ValueId> ids = ops::cond(c.b, batch_branches(batcher, c, results), c.operands);
  return {.ids = std::move(ids), .is_batched = std::move(results)};
}

/// Elements may take different branches: runs all of them and selects for each element.
Results batch_branch_of_each(Batcher& batcher, BatchContext& c) {
  const std::vector<FunctionPtr> batched =
      batch_branches(batcher, c, all(c.equation.results.size()));
  const std::vector<ValueId> operands(c.operands.begin() + 1, c.operands.end());
  std::vector<ValueId> chosen = c.b.inline_function(*batched.back(), operands);
  for (std::size_t number = batched.size() - 1; number-- > 0;) {
    const std::vector<ValueId> here = c.b.inline_function(*batched[number], operands);
    const Type indices = c.b.type(c.operands[0]);
    const ValueId limit = ops::full(c.b, static_cast<double>(number), indices);
    const ValueId is_here = ops::compare(c.b, "le", c.operands[0], limit);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      chosen[i] = select_rows(c.b, is_here, here[i], chosen[i]);
    }
  }
  return {.ids = std::move(chosen), .is_batched = all(c.equation.results.size())};
}

Results batch_cond(Batcher& batcher, BatchContext& c) {
  return c.is_batched[0] ? batch_branch_of_each(batcher, c) : batch_branch_taken(batcher, c);
}

// --- calls

Results batch_call(Batcher& batcher, BatchContext& c) {
  const BatchedBody body = batcher.body(c.equation.attributes.shared_body("body"), c.is_batched);
  ir::Attributes attributes = c.equation.attributes;
  attributes.set("body", ir::Bodies{{body.function}});
  return {.ids = c.b.emit_all(*c.equation.op, std::move(attributes), c.operands),
          .is_batched = body.outputs};
}

/// The cotangent of an argument that all elements share is the sum of the cotangents of the
/// elements.
Function with_shared_cotangents(Function backward, const Marks& is_batched) {
  Builder b(backward);
  std::vector<ValueId> outputs = backward.outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (is_batched[i]) continue;
    Type type = b.type(outputs[i]);
    type.shape.erase(type.shape.begin());
    // Cotangents of integers have no meaning.
    outputs[i] =
        is_float(type.dtype) ? ops::reduce_sum(b, outputs[i], {0}) : ops::full(b, 0.0, type);
  }
  b.set_outputs(std::move(outputs));
  return backward;
}

/// All results are batched, including those that are the same for all elements. So each element has
/// its own cotangents, and `backward` is run for each, so that its results can be added up.
Results batch_custom_vjp(Batcher& batcher, BatchContext& c) {
  const ops::CustomVjpParts parts = ops::custom_vjp_parts(c.equation);
  const std::size_t num_results = c.equation.results.size();
  const auto num_args = static_cast<std::ptrdiff_t>(parts.num_args);
  const Marks args(c.is_batched.begin(), c.is_batched.begin() + num_args);
  const BatchedBody primal = batcher.body(parts.primal, c.is_batched, all(num_results));
  const BatchedBody forward = batcher.body(parts.forward, c.is_batched, all(num_results));
  Marks inputs(forward.outputs.begin() + static_cast<std::ptrdiff_t>(num_results),
               forward.outputs.end());
  inputs.insert(inputs.end(), c.is_batched.begin() + num_args, c.is_batched.end());
  inputs.insert(inputs.end(), num_results, true);
  const BatchedBody backward = batcher.body(parts.backward, inputs, all(parts.num_args));
  ops::CustomVjpParts batched{.primal = primal.function,
                              .forward = forward.function,
                              .backward = shared(with_shared_cotangents(*backward.function, args)),
                              .num_args = parts.num_args};
  return {.ids = ops::custom_vjp(c.b, batched, c.operands), .is_batched = all(num_results)};
}

}  // namespace

Results Batcher::inside(BatchContext& c) {
  const ops::OpRecord* op = c.equation.op;
  if (op == &ops::scan_op) return batch_scan(*this, c);
  if (op == &ops::while_op) return batch_while(*this, c);
  if (op == &ops::cond_op) return batch_cond(*this, c);
  if (op == &ops::call_op || op == &ops::remat_op) return batch_call(*this, c);
  if (op == &ops::custom_vjp_op) return batch_custom_vjp(*this, c);
  require(op == &ops::optimization_barrier_op, "every other op has a batch rule in its record");
  return {.ids = ops::optimization_barrier(c.b, c.operands), .is_batched = c.is_batched};
}

}  // namespace tessera::batch
