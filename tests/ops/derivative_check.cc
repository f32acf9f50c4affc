// Compares derivatives with central differences in f64.
//
// Differences are taken along random directions, so that one number checks all entries of a
// gradient.
#include <cmath>
#include <fmt/format.h>

#include "compile/reference/interpret.h"
#include "differentiate/differentiate.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "tests/ops/conformance.h"

namespace tessera::testing {

namespace {

using ir::Builder;
using ir::Function;
using ir::ValueId;
using ops::HostArray;

constexpr double kStep = 1e-6;
constexpr double kTolerance = 2e-7;

ValueId total(Builder& b, ValueId x) {
  ir::Ints dims(b.type(x).shape.size());
  for (std::size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<std::int64_t>(i);
  return ops::reduce_sum(b, x, dims);
}

/// A function with one f64 scalar output, and the inputs at which to differentiate it.
struct Problem {
  Function function;
  std::vector<HostArray> inputs;

  std::vector<std::size_t> float_inputs() const {
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (is_float(inputs[i].type().dtype)) result.push_back(i);
    }
    return result;
  }
};

/// The sum of the products of `x` with a new input, which is drawn from [-1, 1].
ValueId weighted_total(Builder& b, ValueId x, Problem& problem, std::mt19937_64& generator) {
  const Type type = b.type(x);
  const ValueId weight = b.add_input(type);
  problem.inputs.push_back(random_array(generator, {.type = type, .low = -1.0, .high = 1.0}));
  return total(b, ops::mul(b, x, weight));
}

/// The sum of the op's float results times random weights.
Problem first_order(const Case& c, std::mt19937_64& generator) {
  const ops::Sample sample = with_dtypes(c.sample(), in_double);
  Problem problem{.function = function_of(*c.op, sample), .inputs = {}};
  for (const ops::SampleOperand& operand : sample.operands) {
    problem.inputs.push_back(random_array(generator, operand));
  }
  Builder b(problem.function);
  const std::vector<ValueId> results = problem.function.outputs;
  ValueId loss = ops::scalar(b, 0.0, DType::f64);
  for (ValueId result : results) {
    if (!is_float(b.type(result).dtype)) continue;
    loss = ops::add(b, loss, weighted_total(b, result, problem, generator));
  }
  b.set_outputs({loss});
  return problem;
}

/// The sum of the gradients of `problem` times random weights.
Problem next_order(const Problem& problem, std::mt19937_64& generator) {
  Problem next{.function = differentiate::value_and_grad(problem.function, problem.float_inputs()),
               .inputs = problem.inputs};
  Builder b(next.function);
  const std::vector<ValueId> outputs = next.function.outputs;
  ValueId loss = ops::scalar(b, 0.0, DType::f64);
  for (std::size_t i = 1; i < outputs.size(); ++i) {
    loss = ops::add(b, loss, weighted_total(b, outputs[i], next, generator));
  }
  b.set_outputs({loss});
  return next;
}

double value_at(const Problem& problem, const std::vector<HostArray>& inputs) {
  return compile::interpret(problem.function, inputs)[0].data<double>()[0];
}

Verdict gradient_is_difference(const Problem& problem, std::mt19937_64& generator) {
  const std::vector<std::size_t> wrt = problem.float_inputs();
  const Function gradient = differentiate::value_and_grad(problem.function, wrt);
  const std::vector<HostArray> outputs = compile::interpret(gradient, problem.inputs);
  for (std::size_t n = 0; n < wrt.size(); ++n) {
    std::vector<HostArray> above = problem.inputs;
    std::vector<HostArray> below = problem.inputs;
    double slope = 0.0;
    double size = 1.0;
    const auto entries = outputs[n + 1].data<double>();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const double direction = 2.0 * draw_unit(generator) - 1.0;
      slope += direction * entries[i];
      size += std::fabs(direction * entries[i]);
      above[wrt[n]].data<double>()[i] += kStep * direction;
      below[wrt[n]].data<double>()[i] -= kStep * direction;
    }
    const double difference = (value_at(problem, above) - value_at(problem, below)) / (2.0 * kStep);
    if (std::fabs(slope - difference) <= kTolerance * size) continue;
    return fmt::format("input {}: the slope is {}, the difference {}", wrt[n], slope, difference);
  }
  return std::nullopt;
}

bool takes_and_gives_floats(const Case& c) {
  bool has_float = false;
  for (const ops::SampleOperand& operand : c.sample().operands) {
    has_float = has_float || is_float(operand.type.dtype);
  }
  const Function function = function_of(*c.op, c.sample());
  bool gives_float = false;
  for (ValueId id : function.outputs) gives_float |= is_float(function.type(id).dtype);
  return has_float && gives_float;
}

}  // namespace

bool has_derivative(const Case& c) {
  // By design, the derivative of stop_gradient differs from that of its values.
  return c.op->vjp.is_differentiable() && *c.op->name != "stop_gradient" &&
         takes_and_gives_floats(c);
}

bool has_tangents(const Case& c) {
  return has_derivative(c) || (c.op == &ops::while_op && takes_and_gives_floats(c));
}

Verdict derivative_is_difference(const Case& c) {
  std::mt19937_64 generator = generator_for(c, 1);
  return gradient_is_difference(first_order(c, generator), generator);
}

Verdict second_derivative_is_difference(const Case& c) {
  std::mt19937_64 generator = generator_for(c, 2);
  const Problem first = first_order(c, generator);
  return gradient_is_difference(next_order(first, generator), generator);
}

Verdict tangent_is_difference(const Case& c) {
  std::mt19937_64 generator = generator_for(c, 3);
  const Problem problem = first_order(c, generator);
  const std::vector<std::size_t> wrt = problem.float_inputs();
  std::vector<HostArray> inputs = problem.inputs, above = inputs, below = inputs;
  for (const std::size_t n : wrt) {
    inputs.push_back(
        random_array(generator, {.type = problem.inputs[n].type(), .low = -1.0, .high = 1.0}));
    const auto direction = inputs.back().data<double>();
    for (std::size_t i = 0; i < direction.size(); ++i) {
      above[n].data<double>()[i] += kStep * direction[i];
      below[n].data<double>()[i] -= kStep * direction[i];
    }
  }
  const double difference = (value_at(problem, above) - value_at(problem, below)) / (2.0 * kStep);
  const double tangent =
      compile::interpret(differentiate::jvp(problem.function, wrt), inputs)[1].data<double>()[0];
  const double size = 1.0 + std::fabs(difference) + std::fabs(value_at(problem, problem.inputs));
  if (std::fabs(tangent - difference) <= 10 * kTolerance * size) return std::nullopt;
  return fmt::format("the tangent is {}, the difference {}", tangent, difference);
}

}  // namespace tessera::testing
