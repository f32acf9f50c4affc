#include "batch/control.h"

#include <algorithm>

#include <tessera/error.h>

#include "ops/control/control.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::batch {

namespace {

using ir::Builder;
using ir::Function;
using ir::ValueId;
using ops::BatchContext;
using ops::FunctionPtr;
using Marks = std::vector<bool>;

FunctionPtr shared(Function function) {
  return std::make_shared<const Function>(std::move(function));
}

Marks all(std::size_t count) { return Marks(count, true); }

/// A nested function, batched as the equation is.
Batched nested(const BatchContext& c, const Function& body, const Marks& inputs,
               const Marks& must_be_batched = {}) {
  return batch(body, inputs, c.size, must_be_batched, c.axis);
}

/// Operands as the marks ask for them.
std::vector<ValueId> operands_as(BatchContext& c, const Marks& is_batched) {
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    operands.push_back(is_batched[i] ? c.batched(i) : c.operands[i]);
  }
  return operands;
}

/// The values for a batched choice `pred`, bool[size].
ValueId select_rows(Builder& b, ValueId pred, ValueId on_true, ValueId on_false) {
  const Shape shape = b.type(on_true).shape;
  return ops::select(b, ops::broadcast_in_dim(b, pred, {0}, shape), on_true, on_false);
}

// --- loops

/// Batches the body of a loop. Inputs from `first_carry` on are carried: those whose next value is
/// batched are marked, and then all their values are batched.
Batched batch_loop_body(const BatchContext& c, Marks& inputs, std::size_t first_carry,
                        std::size_t num_carry) {
  const Function& body = c.equation.attributes.body("body");
  while (true) {
    const auto first = inputs.begin() + static_cast<std::ptrdiff_t>(first_carry);
    const Marks carry(first, first + static_cast<std::ptrdiff_t>(num_carry));
    Batched batched = nested(c, body, inputs, carry);
    bool is_stable = true;
    for (std::size_t i = 0; i < num_carry; ++i) {
      if (!batched.is_output_batched[i] || carry[i]) continue;
      inputs[first_carry + i] = true;
      is_stable = false;
    }
    if (is_stable) return batched;
  }
}

/// Exchanges the first two dimensions.
ValueId swap_leading(Builder& b, ValueId x) { return ops::move_to_front(b, x, 1); }

Results batch_scan(BatchContext& c) {
  const ops::ScanParts parts = ops::scan_parts(c.equation);
  Marks inputs = c.is_batched;
  Batched body = batch_loop_body(c, inputs, parts.num_consts, parts.num_carry);
  // The loop runs along dimension 0: there the batch dimension is the next.
  std::vector<ValueId> operands = operands_as(c, inputs);
  for (std::size_t i = parts.first_scanned(); i < operands.size(); ++i) {
    if (inputs[i]) operands[i] = swap_leading(c.b, operands[i]);
  }
  Results results{.ids = {}, .is_batched = body.is_output_batched};
  results.ids = ops::scan(c.b, parts, shared(std::move(body.function)), std::move(operands));
  for (std::size_t i = parts.num_carry; i < results.ids.size(); ++i) {
    if (results.is_batched[i]) results.ids[i] = swap_leading(c.b, results.ids[i]);
  }
  return results;
}

/// Whether any element wants another round.
Function any_wants_more(Function condition) {
  Builder b(condition);
  b.set_outputs({ops::reduce_or(b, condition.outputs[0], {0})});
  return condition;
}

/// One round for the elements that want it.
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

Results batch_while(BatchContext& c) {
  const ir::Attributes& attributes = c.equation.attributes;
  const std::size_t num_consts = ops::at(attributes.integer("num_consts"));
  const std::size_t num_carry = c.operands.size() - num_consts;
  Marks inputs = c.is_batched;
  Batched body = batch_loop_body(c, inputs, num_consts, num_carry);
  Batched condition = nested(c, attributes.body("condition"), inputs);
  if (condition.is_output_batched[0]) {
    // Elements stop at different times, which makes all that they carry different.
    std::fill(inputs.begin() + static_cast<std::ptrdiff_t>(num_consts), inputs.end(), true);
    body = nested(c, attributes.body("body"), inputs, all(num_carry));
    condition = nested(c, attributes.body("condition"), inputs);
    body.function = round_where_wanted(condition.function, body.function, num_consts);
    condition.function = any_wants_more(std::move(condition.function));
  }
  Results results{.ids = {}, .is_batched = body.is_output_batched};
  if (condition.is_output_batched[0]) results.is_batched = all(num_carry);
  results.ids = ops::while_loop(c.b, num_consts, shared(std::move(condition.function)),
                                shared(std::move(body.function)), operands_as(c, inputs));
  return results;
}

// --- branches

/// All branches for the same operands, with results batched alike.
std::vector<Batched> batch_branches(const BatchContext& c, Marks outputs) {
  const auto& branches = c.equation.attributes.get<ir::Bodies>("branches").functions;
  const Marks inputs(c.is_batched.begin() + 1, c.is_batched.end());
  std::vector<Batched> batched;
  for (const FunctionPtr& branch : branches) {
    const Batched found = nested(c, *branch, inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      outputs[i] = outputs[i] || found.is_output_batched[i];
    }
  }
  for (const FunctionPtr& branch : branches) {
    batched.push_back(nested(c, *branch, inputs, outputs));
  }
  return batched;
}

/// One branch for the whole batch.
Results batch_branch_taken(BatchContext& c) {
  std::vector<Batched> batched = batch_branches(c, Marks(c.equation.results.size(), false));
  Results results{.ids = {}, .is_batched = batched[0].is_output_batched};
  std::vector<FunctionPtr> branches;
  for (Batched& branch : batched) branches.push_back(shared(std::move(branch.function)));
  results.ids = ops::cond(c.b, std::move(branches), c.operands);
  return results;
}

/// All branches, and for each element the results of its own.
Results batch_branch_of_each(BatchContext& c) {
  const std::vector<Batched> batched = batch_branches(c, all(c.equation.results.size()));
  const std::vector<ValueId> operands(c.operands.begin() + 1, c.operands.end());
  std::vector<ValueId> chosen = c.b.inline_function(batched.back().function, operands);
  for (std::size_t number = batched.size() - 1; number-- > 0;) {
    const std::vector<ValueId> here = c.b.inline_function(batched[number].function, operands);
    const Type indices = c.b.type(c.operands[0]);
    const ValueId limit = ops::full(c.b, static_cast<double>(number), indices);
    const ValueId is_here = ops::compare(c.b, "le", c.operands[0], limit);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      chosen[i] = select_rows(c.b, is_here, here[i], chosen[i]);
    }
  }
  return {.ids = std::move(chosen), .is_batched = all(c.equation.results.size())};
}

Results batch_cond(BatchContext& c) {
  return c.is_batched[0] ? batch_branch_of_each(c) : batch_branch_taken(c);
}

// --- calls

Results batch_call(BatchContext& c) {
  const ir::Attributes& attributes = c.equation.attributes;
  Batched body = nested(c, attributes.body("body"), c.is_batched);
  Results results{.ids = {}, .is_batched = body.is_output_batched};
  const FunctionPtr function = shared(std::move(body.function));
  results.ids = c.equation.op == &ops::call_op
                    ? ops::call(c.b, attributes.get<std::string>("name"), function, c.operands)
                    : ops::remat(c.b, attributes.get<std::string>("policy"), function, c.operands);
  return results;
}

/// The cotangent of an argument that all elements share is the sum of theirs.
Function with_shared_cotangents(Function backward, const Marks& is_batched) {
  Builder b(backward);
  std::vector<ValueId> outputs = backward.outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (is_batched[i]) continue;
    Type type = b.type(outputs[i]);
    type.shape.erase(type.shape.begin());
    // Integers have no cotangents that mean anything.
    outputs[i] =
        is_float(type.dtype) ? ops::reduce_sum(b, outputs[i], {0}) : ops::full(b, 0.0, type);
  }
  b.set_outputs(std::move(outputs));
  return backward;
}

/// All results are batched, also those that are the same for all elements: then each element has
/// cotangents of its own, and what `backward` makes of them can be added up.
Results batch_custom_vjp(BatchContext& c) {
  const ops::CustomVjpParts parts = ops::custom_vjp_parts(c.equation);
  const std::size_t num_results = c.equation.results.size();
  const Marks args(c.is_batched.begin(),
                   c.is_batched.begin() + static_cast<std::ptrdiff_t>(parts.num_args));
  Batched primal = nested(c, *parts.primal, c.is_batched, all(num_results));
  Batched forward = nested(c, *parts.forward, c.is_batched, all(num_results));
  Marks inputs(forward.is_output_batched.begin() + static_cast<std::ptrdiff_t>(num_results),
               forward.is_output_batched.end());
  inputs.insert(inputs.end(), c.is_batched.begin() + static_cast<std::ptrdiff_t>(parts.num_args),
                c.is_batched.end());
  inputs.insert(inputs.end(), num_results, true);
  Batched backward = nested(c, *parts.backward, inputs, all(parts.num_args));
  ops::CustomVjpParts batched{
      .primal = shared(std::move(primal.function)),
      .forward = shared(std::move(forward.function)),
      .backward = shared(with_shared_cotangents(std::move(backward.function), args)),
      .num_args = parts.num_args};
  return {.ids = ops::custom_vjp(c.b, batched, c.operands), .is_batched = all(num_results)};
}

}  // namespace

Results batch_inside(BatchContext& c) {
  const ops::OpRecord* op = c.equation.op;
  if (op == &ops::scan_op) return batch_scan(c);
  if (op == &ops::while_op) return batch_while(c);
  if (op == &ops::cond_op) return batch_cond(c);
  if (op == &ops::call_op || op == &ops::remat_op) return batch_call(c);
  if (op == &ops::custom_vjp_op) return batch_custom_vjp(c);
  require(op == &ops::optimization_barrier_op, "src/batch knows the ops that it batches itself");
  return {.ids = ops::optimization_barrier(c.b, c.operands), .is_batched = c.is_batched};
}

}  // namespace tessera::batch
