// Batch rules: what a rule gives for a whole batch is, row by row, what the op gives for each
// element of it, bit for bit.
#include <gtest/gtest.h>

#include "compile/reference/interpret.h"
#include "ops/reference/loops.h"
#include "tests/ops/sample_inputs.h"

namespace tessera {
namespace {

using ir::Builder;
using ir::Function;
using ir::ValueId;
using ops::HostArray;
using testing::Case;

constexpr std::int64_t kBatch = 3;

Shape with_batch(Shape shape) {
  shape.insert(shape.begin(), kBatch);
  return shape;
}

/// Element `index` of a batch.
HostArray row_of(const HostArray& batch, std::int64_t index, const Type& type) {
  HostArray row(type);
  const std::size_t bytes = row.bytes().size();
  if (bytes == 0) return row;
  std::memcpy(row.bytes().data(), batch.bytes().data() + static_cast<std::size_t>(index) * bytes,
              bytes);
  return row;
}

/// The rule's equations for a batch of the operands in `is_batched`.
Function batched_function(const Case& c, const std::vector<bool>& is_batched) {
  const Function single = testing::function_of(*c.op, c.sample());
  Function function;
  Builder b(function);
  ops::BatchContext context{.b = b,
                            .equation = single.equations[0],
                            .types = ir::operand_types(single, single.equations[0]),
                            .operands = {},
                            .is_batched = is_batched,
                            .size = kBatch};
  for (std::size_t i = 0; i < is_batched.size(); ++i) {
    Type type = context.types[i];
    if (is_batched[i]) type.shape = with_batch(type.shape);
    context.operands.push_back(b.add_input(type));
  }
  b.set_outputs(c.op->batch(context));
  return function;
}

void expect_rows(const Case& c, const std::vector<bool>& is_batched) {
  std::mt19937_64 generator = testing::generator_for(c, 5);
  std::vector<HostArray> inputs;
  for (std::size_t i = 0; i < is_batched.size(); ++i) {
    ops::SampleOperand operand = c.sample().operands[i];
    if (is_batched[i]) operand.type.shape = with_batch(operand.type.shape);
    inputs.push_back(testing::random_array(generator, operand));
  }
  const auto outputs = compile::interpret(batched_function(c, is_batched), inputs);
  const Function single = testing::function_of(*c.op, c.sample());
  for (std::int64_t index = 0; index < kBatch; ++index) {
    std::vector<HostArray> rows;
    for (std::size_t i = 0; i < is_batched.size(); ++i) {
      rows.push_back(is_batched[i] ? row_of(inputs[i], index, c.sample().operands[i].type)
                                   : inputs[i]);
    }
    const auto wanted = compile::interpret(single, rows);
    ASSERT_EQ(outputs.size(), wanted.size());
    for (std::size_t n = 0; n < wanted.size(); ++n) {
      ASSERT_EQ(outputs[n].type().shape, with_batch(wanted[n].type().shape));
      const HostArray found = row_of(outputs[n], index, wanted[n].type());
      EXPECT_EQ(0, wanted[n].bytes().empty()
                       ? 0
                       : std::memcmp(found.bytes().data(), wanted[n].bytes().data(),
                                     wanted[n].bytes().size()))
          << "element " << index << " of the batch, result " << n;
    }
  }
}

std::vector<Case> batchable_cases() {
  std::vector<Case> cases;
  for (const Case& c : testing::all_cases()) {
    const bool has_bodies = c.op->bodies != nullptr;
    if (c.op->batch.has_rule() && !has_bodies && !c.sample().operands.empty()) cases.push_back(c);
  }
  return cases;
}

class BatchRule : public ::testing::TestWithParam<Case> {};

TEST_P(BatchRule, IsTheOpOnEveryElement) {
  const std::size_t count = GetParam().sample().operands.size();
  expect_rows(GetParam(), std::vector<bool>(count, true));
  for (std::size_t i = 0; count > 1 && i < count; ++i) {
    std::vector<bool> one(count, false);
    one[i] = true;
    expect_rows(GetParam(), one);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, BatchRule, ::testing::ValuesIn(batchable_cases()),
                         [](const auto& tested) { return tested.param.name(); });

}  // namespace
}  // namespace tessera
