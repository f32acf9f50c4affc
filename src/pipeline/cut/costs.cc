#include "pipeline/cut/costs.h"

#include <algorithm>

#include "ops/control/control.h"
#include "ops/ops.h"
#include "ops/record.h"

namespace tessera::pipeline {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;

// The speeds of one core. Only their ratios matter for where stages are cut.
constexpr double kDotFlopsPerSecond = 1e11;
constexpr double kTileFlopsPerSecond = 1.6e10;

double bytes_of(const Function& function, const std::vector<ValueId>& ids) {
  double bytes = 0;
  for (ValueId id : ids) bytes += static_cast<double>(size_bytes(function.type(id)));
  return bytes;
}

bool is_contraction(const Equation& equation) {
  return equation.op == &ops::dot_general_op || *equation.op->name == "conv";
}

double seconds_of_body(const Function& body) {
  double seconds = 0;
  for (const Equation& equation : body.equations) seconds += seconds_of(body, equation);
  return seconds;
}

/// The seconds of an equation without bodies.
double seconds_of_op(const Function& function, const Equation& equation) {
  const ops::Pattern pattern = *equation.op->pattern;
  if (pattern == ops::Pattern::view) return 0;
  const double flops =
      (*equation.op->cost)(equation.attributes, ir::operand_types(function, equation),
                           ir::result_types(function, equation));
  // A fused equation reads its operands from registers.
  const bool is_fused = pattern == ops::Pattern::elementwise || pattern == ops::Pattern::generator;
  const double bytes =
      bytes_of(function, equation.results) + (is_fused ? 0 : bytes_of(function, equation.operands));
  return std::max(flops / (is_contraction(equation) ? kDotFlopsPerSecond : kTileFlopsPerSecond),
                  bytes / (is_fused ? 2 * kBytesPerSecond : kBytesPerSecond));
}

/// The costs of a nested function; `held` counts only values that it computes itself.
Passes passes_of_body(const Function& body, const std::vector<bool>& is_active_input) {
  Passes total;
  std::vector<bool> is_active(body.values.size(), false);
  std::vector<bool> is_held(body.values.size(), false);
  std::vector<bool> is_own(body.values.size(), true);
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    is_active[body.inputs[i]] = is_active_input[i];
    is_own[body.inputs[i]] = false;
  }
  for (const Equation& equation : body.equations) {
    std::vector<bool> is_wanted;
    for (ValueId id : equation.operands) is_wanted.push_back(is_active[id]);
    const bool is_any = std::find(is_wanted.begin(), is_wanted.end(), true) != is_wanted.end();
    const Passes one = passes_of(body, equation, is_wanted);
    total.forward += one.forward;
    total.backward += one.backward;
    total.held += one.held;
    for (ValueId id : equation.results) is_active[id] = is_any;
    if (equation.operands.empty()) is_own[equation.results[0]] = false;
    if (!is_any || !holds_operands(equation)) continue;
    for (ValueId id : equation.operands) is_held[id] = is_own[id];
  }
  for (ValueId id = 0; id < is_held.size(); ++id) {
    if (is_held[id]) total.held += static_cast<double>(size_bytes(body.type(id)));
  }
  return total;
}

Passes passes_of_custom_vjp(const Equation& equation) {
  const ops::CustomVjpParts parts = ops::custom_vjp_parts(equation);
  const std::vector<ValueId>& outputs = parts.forward->outputs;
  const auto first = outputs.begin() + static_cast<std::ptrdiff_t>(equation.results.size());
  return {.forward = seconds_of_body(*parts.primal),
          .backward = seconds_of_body(*parts.backward),
          .held = bytes_of(*parts.forward, {first, outputs.end()})};
}

}  // namespace

bool is_view(const Equation& equation) {
  return ops::is_view(equation) && equation.op != &ops::stage_end_op;
}

bool shrinks(const Function& function, const Equation& equation) {
  return num_elements(function.type(equation.results[0]).shape) <
         num_elements(function.type(equation.operands[0]).shape);
}

bool holds_operands(const Equation& equation) {
  const ops::Linearity linearity = equation.op->linearity;
  const bool is_linear = linearity == ops::Linearity::all ||
                         (linearity == ops::Linearity::each && equation.operands.size() == 1);
  return !is_view(equation) && !is_linear;
}

double seconds_of(const Function& function, const Equation& equation) {
  const std::vector<const Function*> bodies = ir::bodies_of(equation);
  if (bodies.empty()) return seconds_of_op(function, equation);
  if (equation.op == &ops::custom_vjp_op) {
    return seconds_of_body(*ops::custom_vjp_parts(equation).primal);
  }
  double sum = 0;
  double most = 0;
  for (const Function* body : bodies) {
    const double seconds = seconds_of_body(*body);
    sum += seconds;
    most = std::max(most, seconds);
  }
  if (equation.op == &ops::cond_op) return most;
  if (equation.op != &ops::scan_op) return sum;
  return sum * static_cast<double>(equation.attributes.integer("length"));
}

Passes passes_of(const Function& function, const Equation& equation,
                 const std::vector<bool>& is_active) {
  const auto num_active = std::count(is_active.begin(), is_active.end(), true);
  const bool has_backward = num_active > 0 && equation.op != &ops::while_op;
  const std::vector<const Function*> bodies = ir::bodies_of(equation);
  if (bodies.empty() || !has_backward) {
    const double forward = seconds_of(function, equation);
    const bool is_sum = equation.op->linearity == ops::Linearity::all;
    return {.forward = forward,
            .backward = has_backward && !is_sum ? forward * static_cast<double>(num_active) : 0.0,
            .held = 0};
  }
  if (equation.op == &ops::custom_vjp_op) return passes_of_custom_vjp(equation);
  Passes most;
  for (const Function* body : bodies) {
    // The first operand of a cond is the number of the branch.
    const auto skipped = static_cast<std::ptrdiff_t>(is_active.size() - body->inputs.size());
    const Passes one = passes_of_body(*body, {is_active.begin() + skipped, is_active.end()});
    if (one.forward >= most.forward) most = one;
  }
  if (equation.op == &ops::remat_op) {
    most.backward += most.forward;
    most.held = 0;
  }
  if (equation.op == &ops::scan_op) {
    const auto length = static_cast<double>(equation.attributes.integer("length"));
    most = {most.forward * length, most.backward * length, most.held * length};
  }
  return most;
}

}  // namespace tessera::pipeline
