// Each row of a batched op has the bits of the op for that row.
//
// Generated from the op table: every sample of every record, with several choices of batched
// operands. The same for the program of its derivative, and for a batch of batches.
#include "batch/batch.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "compile/reference/interpret.h"
#include "differentiate/differentiate.h"
#include "ir/text.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "partition/moves.h"
#include "tests/fuzz/run_sharded.h"
#include "tests/ops/sample_inputs.h"

namespace tessera {
namespace {

using ir::Builder;
using ir::Function;
using ir::ValueId;
using ops::HostArray;
using testing::Arrays;
using testing::Case;
using Marks = std::vector<bool>;

constexpr std::int64_t kSize = 3;
/// Choices per sample; all of them if there are fewer.
constexpr std::size_t kMaxChoices = 7;

using Engine = std::function<Arrays(const Function&, const Arrays&)>;

/// Random non-empty subsets of the inputs.
std::vector<Marks> choices(std::size_t count, std::mt19937_64& generator) {
  std::vector<Marks> result;
  const std::size_t num_choices = (std::size_t{1} << count) - 1;
  for (std::size_t n = 1; n <= std::min(num_choices, kMaxChoices); ++n) {
    const std::size_t bits = num_choices <= kMaxChoices ? n : 1 + generator() % num_choices;
    Marks marks;
    for (std::size_t i = 0; i < count; ++i) marks.push_back((bits >> i & 1U) != 0);
    result.push_back(std::move(marks));
  }
  return result;
}

std::string text_of(const Marks& marks) {
  std::string text = "batched:";
  for (bool is_marked : marks) text += is_marked ? " yes" : " no";
  return text + "\n";
}

/// Row `index` of an array whose first dimension is the batch dimension.
HostArray row_of(const HostArray& array, std::int64_t index) {
  Type type = array.type();
  type.shape.erase(type.shape.begin());
  HostArray row(type);
  const std::size_t start = static_cast<std::size_t>(index) * row.bytes().size();
  const auto bytes = array.bytes().subspan(start, row.bytes().size());
  std::copy(bytes.begin(), bytes.end(), row.bytes().begin());
  return row;
}

/// A function, and the types and ranges that its inputs are drawn from.
struct Tested {
  Function function;
  std::vector<ops::SampleOperand> inputs;
};

Arrays random_inputs(const Tested& tested, const Marks& marks, testing::Values values,
                     std::mt19937_64& generator) {
  Arrays arrays;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    ops::SampleOperand operand = tested.inputs[i];
    if (marks[i]) operand.type.shape.insert(operand.type.shape.begin(), kSize);
    arrays.push_back(testing::random_array(generator, operand, values));
  }
  return arrays;
}

/// Expects the rows of the batched function on `engine` to equal `function` applied to the rows.
void expect_rows(const Function& function, const Marks& marks, const Arrays& inputs,
                 const Engine& engine) {
  const batch::Batched batched = batch::batch(function, marks, kSize);
  ASSERT_NO_THROW(ir::verify(batched.function, "batching")) << ir::print(batched.function);
  SCOPED_TRACE(text_of(marks) + ir::print(function) + ir::print(batched.function) +
               "TESSERA_TEST_SEED=" + std::to_string(testing::test_seed()));
  const Arrays found = engine(batched.function, inputs);
  for (std::int64_t row = 0; row < kSize; ++row) {
    Arrays row_inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      row_inputs.push_back(marks[i] ? row_of(inputs[i], row) : inputs[i]);
    }
    const Arrays wanted = engine(function, row_inputs);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const HostArray found_row = batched.is_output_batched[i] ? row_of(found[i], row) : found[i];
      ASSERT_EQ(testing::first_difference(found_row, wanted[i]), std::nullopt)
          << "row " << row << " of output " << i;
    }
  }
}

void expect_rows(const Tested& tested, const Engine& engine, std::mt19937_64& generator) {
  for (const Marks& marks : choices(tested.inputs.size(), generator)) {
    for (testing::Values values : {testing::Values::ordinary, testing::Values::special}) {
      const Arrays inputs = random_inputs(tested, marks, values, generator);
      ASSERT_NO_FATAL_FAILURE(expect_rows(tested.function, marks, inputs, engine));
    }
  }
}

// --- cases

/// Collectives and tasks are inserted after batching.
bool is_placed_late(const ops::OpRecord& op) {
  return partition::kind_of(op) || &op == &ops::task_op || &op == &ops::transfer_op;
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Case& c : testing::all_cases()) {
    if (!is_placed_late(*c.op) && !c.sample().operands.empty()) result.push_back(c);
  }
  return result;
}

bool runs_on_host(const Case& c) {
  for (const auto& operand : c.sample().operands) {
    if (operand.type.dtype == DType::f64) return false;
  }
  const Function function = testing::function_of(*c.op, c.sample());
  return std::none_of(function.outputs.begin(), function.outputs.end(),
                      [&](ValueId id) { return function.type(id).dtype == DType::f64; });
}

Tested tested_op(const Case& c) {
  return {.function = testing::function_of(*c.op, c.sample()), .inputs = c.sample().operands};
}

// --- value and gradients

bool is_float_value(const Function& function, ValueId id) {
  return is_float(function.type(id).dtype);
}

bool has_derivative(const Case& c) {
  // Derivatives of nested functions are tested with the other derivatives.
  if (!c.op->vjp.is_differentiable()) return false;
  const Function f = testing::function_of(*c.op, c.sample());
  auto is_float_id = [&](ValueId id) { return is_float_value(f, id); };
  return std::any_of(f.inputs.begin(), f.inputs.end(), is_float_id) &&
         std::any_of(f.outputs.begin(), f.outputs.end(), is_float_id);
}

/// The derivative of the sum of the op's float results times weights, which are further inputs.
Tested tested_derivative(const Case& c) {
  Tested tested = tested_op(c);
  std::vector<std::size_t> wrt;
  for (std::size_t i = 0; i < tested.inputs.size(); ++i) {
    if (is_float(tested.inputs[i].type.dtype)) wrt.push_back(i);
  }
  Builder b(tested.function);
  ValueId loss = ir::kNoValue;
  for (ValueId result : std::vector<ValueId>(tested.function.outputs)) {
    if (!is_float_value(tested.function, result)) continue;
    const Type type = b.type(result);
    const ValueId weight = b.add_input(type);
    tested.inputs.push_back({.type = type, .low = -1.0, .high = 1.0});
    ir::Ints dims;
    for (std::int64_t dim = 0; dim < type.rank(); ++dim) dims.push_back(dim);
    const ValueId sum = ops::reduce_sum(b, ops::mul(b, result, weight), dims);
    const ValueId total = loss == ir::kNoValue ? sum : ops::convert(b, sum, b.type(loss).dtype);
    loss = loss == ir::kNoValue ? total : ops::add(b, loss, total);
  }
  b.set_outputs({loss});
  tested.function = differentiate::value_and_grad(tested.function, wrt);
  return tested;
}

// --- tests

class Batch : public ::testing::TestWithParam<Case> {};

TEST_P(Batch, RowsAreThoseOfTheLoopOnTheReference) {
  std::mt19937_64 generator = testing::generator_for(GetParam(), 11);
  expect_rows(tested_op(GetParam()), testing::run_reference, generator);
}

TEST_P(Batch, RowsAreThoseOfTheLoopOnTheHost) {
  if (!runs_on_host(GetParam())) GTEST_SKIP();
  std::mt19937_64 generator = testing::generator_for(GetParam(), 12);
  expect_rows(tested_op(GetParam()), testing::run_whole, generator);
}

TEST_P(Batch, OfABatch) {
  std::mt19937_64 generator = testing::generator_for(GetParam(), 13);
  const Tested tested = tested_op(GetParam());
  for (const Marks& inner : choices(tested.inputs.size(), generator)) {
    Tested once = tested;
    once.function = batch::batch(tested.function, inner, kSize).function;
    for (std::size_t i = 0; i < inner.size(); ++i) {
      Shape& shape = once.inputs[i].type.shape;
      if (inner[i]) shape.insert(shape.begin(), kSize);
    }
    for (const Marks& outer : choices(tested.inputs.size(), generator)) {
      const Arrays inputs = random_inputs(once, outer, testing::Values::ordinary, generator);
      ASSERT_NO_FATAL_FAILURE(expect_rows(once.function, outer, inputs, testing::run_reference));
    }
  }
}

TEST_P(Batch, OfTheDerivative) {
  if (!has_derivative(GetParam())) GTEST_SKIP();
  std::mt19937_64 generator = testing::generator_for(GetParam(), 14);
  const Tested tested = tested_derivative(GetParam());
  expect_rows(tested, testing::run_reference, generator);
  if (runs_on_host(GetParam())) expect_rows(tested, testing::run_whole, generator);
}

INSTANTIATE_TEST_SUITE_P(Ops, Batch, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name(); });

TEST(BatchRules, AreThereForAllOpsThatUsersReach) {
  for (const ops::OpRecord* op : ops::all_ops()) {
    const ops::Sample& sample = op->samples->front();
    const bool makes_arrays = sample.operands.empty() && !sample.attributes.has("axis");
    EXPECT_EQ(op->batch.has_rule(), !is_placed_late(*op) && !makes_arrays) << *op->name;
  }
}

}  // namespace
}  // namespace tessera
