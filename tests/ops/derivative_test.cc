// The derivative of every op, and the derivative of that, against central differences in f64.
//
// Differences are taken along random directions: one number tests all entries of a gradient.
#include <gtest/gtest.h>

#include "compile/reference/interpret.h"
#include "differentiate/differentiate.h"
#include "ops/emit.h"
#include "tests/ops/sample_inputs.h"

namespace tessera {
namespace {

using ir::Builder;
using ir::Function;
using ir::ValueId;
using ops::HostArray;
using testing::Case;

constexpr double kStep = 1e-6;
constexpr double kTolerance = 2e-7;

ValueId total(Builder& b, ValueId x) {
  ir::Ints dims(b.type(x).shape.size());
  for (std::size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<std::int64_t>(i);
  return ops::reduce_sum(b, x, dims);
}

/// A function with one f64 scalar output, and where to take it.
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

/// Adds an input drawn from [-1, 1] and the sum of its products with `x`.
ValueId weighted_total(Builder& b, ValueId x, Problem& problem, std::mt19937_64& generator) {
  const Type type = b.type(x);
  const ValueId weight = b.add_input(type);
  problem.inputs.push_back(
      testing::random_array(generator, {.type = type, .low = -1.0, .high = 1.0}));
  return total(b, ops::mul(b, x, weight));
}

/// The op's float results, weighted at random and added up.
Problem first_order(const Case& c, std::mt19937_64& generator) {
  const ops::Sample sample = testing::in_double(c.sample());
  Problem problem{.function = testing::function_of(*c.op, sample), .inputs = {}};
  for (const ops::SampleOperand& operand : sample.operands) {
    problem.inputs.push_back(testing::random_array(generator, operand));
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

/// The gradients of `problem`, weighted at random and added up.
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

void expect_gradient_is_difference(const Problem& problem, std::mt19937_64& generator) {
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
      const double direction = 2.0 * testing::draw_unit(generator) - 1.0;
      slope += direction * entries[i];
      size += std::fabs(direction * entries[i]);
      above[wrt[n]].data<double>()[i] += kStep * direction;
      below[wrt[n]].data<double>()[i] -= kStep * direction;
    }
    const double difference = (value_at(problem, above) - value_at(problem, below)) / (2.0 * kStep);
    EXPECT_NEAR(slope, difference, kTolerance * size) << "input " << wrt[n];
  }
}

std::vector<Case> differentiable_cases() {
  std::vector<Case> cases;
  for (const Case& c : testing::all_cases()) {
    // The derivative of stop_gradient is not that of its value, on purpose.
    if (!c.op->vjp.is_differentiable() || *c.op->name == "stop_gradient") continue;
    bool has_float = false;
    for (const ops::SampleOperand& operand : c.sample().operands) {
      has_float = has_float || is_float(operand.type.dtype);
    }
    const Function function = testing::function_of(*c.op, c.sample());
    bool gives_float = false;
    for (ValueId id : function.outputs) gives_float |= is_float(function.type(id).dtype);
    if (has_float && gives_float) cases.push_back(c);
  }
  return cases;
}

class Derivative : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { RecordProperty("seed", std::to_string(testing::test_seed())); }
};

TEST_P(Derivative, IsTheCentralDifference) {
  SCOPED_TRACE("TESSERA_TEST_SEED=" + std::to_string(testing::test_seed()));
  std::mt19937_64 generator = testing::generator_for(GetParam(), 1);
  expect_gradient_is_difference(first_order(GetParam(), generator), generator);
}

TEST_P(Derivative, HasADerivative) {
  SCOPED_TRACE("TESSERA_TEST_SEED=" + std::to_string(testing::test_seed()));
  std::mt19937_64 generator = testing::generator_for(GetParam(), 2);
  const Problem first = first_order(GetParam(), generator);
  expect_gradient_is_difference(next_order(first, generator), generator);
}

/// Rules give no cotangents that nobody wants, and emit nothing for them.
TEST_P(Derivative, DoesNoWorkThatNobodyWants) {
  if (GetParam().op->bodies != nullptr) return;  // without a rule of their own
  Function function = testing::function_of(*GetParam().op, GetParam().sample());
  Builder b(function);
  const ir::Equation equation = function.equations[0];
  std::vector<ValueId> cotangents;
  for (ValueId id : function.outputs) {
    const bool has_cotangent = is_float(b.type(id).dtype);
    cotangents.push_back(has_cotangent ? b.add_input(Type(b.type(id))) : ir::kNoValue);
  }
  ops::VjpContext context{.b = b,
                          .equation = equation,
                          .cotangents = cotangents,
                          .is_wanted = std::vector<bool>(equation.operands.size(), false)};
  for (std::size_t wanted = 0; wanted < equation.operands.size(); ++wanted) {
    if (!is_float(b.type(equation.operands[wanted]).dtype)) continue;
    context.is_wanted[wanted] = true;
    const ops::Cotangents given = GetParam().op->vjp(context);
    ASSERT_EQ(given.size(), equation.operands.size());
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (i != wanted) {
        EXPECT_EQ(given[i], ir::kNoValue);
      }
      if (given[i] != ir::kNoValue) {
        EXPECT_EQ(b.type(given[i]), b.type(equation.operands[i]));
      }
    }
    context.is_wanted[wanted] = false;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Derivative, ::testing::ValuesIn(differentiable_cases()),
                         [](const auto& tested) { return tested.param.name(); });

}  // namespace
}  // namespace tessera
