// Compares batch rules with the op on each element of the batch.
#include <cstring>
#include <fmt/format.h>

#include "compile/reference/interpret.h"
#include "tests/fuzz/run_sharded.h"
#include "tests/ops/conformance.h"

namespace tessera::testing {

namespace {

using ir::Builder;
using ir::Function;
using ir::ValueId;
using ops::HostArray;

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

/// The equations of the batch rule when the operands in `is_batched` are batches.
Function batched_function(const Case& c, const std::vector<bool>& is_batched) {
  const Function single = function_of(*c.op, c.sample());
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

Verdict rows_are_the_op(const Case& c, const std::vector<bool>& is_batched, Values values) {
  std::mt19937_64 generator = generator_for(c, 5);
  std::vector<HostArray> inputs;
  for (std::size_t i = 0; i < is_batched.size(); ++i) {
    ops::SampleOperand operand = c.sample().operands[i];
    if (is_batched[i]) operand.type.shape = with_batch(operand.type.shape);
    inputs.push_back(random_array(generator, operand, values));
  }
  const auto outputs = compile::interpret(batched_function(c, is_batched), inputs);
  const Function single = function_of(*c.op, c.sample());
  for (std::int64_t index = 0; index < kBatch; ++index) {
    std::vector<HostArray> rows;
    for (std::size_t i = 0; i < is_batched.size(); ++i) {
      rows.push_back(is_batched[i] ? row_of(inputs[i], index, c.sample().operands[i].type)
                                   : inputs[i]);
    }
    const auto wanted = compile::interpret(single, rows);
    if (outputs.size() != wanted.size()) return "the batch has another number of results";
    for (std::size_t n = 0; n < wanted.size(); ++n) {
      if (outputs[n].type().shape != with_batch(wanted[n].type().shape)) {
        return fmt::format("result {} of the batch is {}", n, to_string(outputs[n].type()));
      }
      const auto difference =
          first_difference(row_of(outputs[n], index, wanted[n].type()), wanted[n]);
      if (difference) return fmt::format("element {}, result {}: {}", index, n, *difference);
    }
  }
  return std::nullopt;
}

}  // namespace

bool has_batch_rule(const Case& c) {
  const bool has_bodies = c.op->bodies != nullptr;
  return c.op->batch.has_rule() && !c.op->batch.is_inside() && !has_bodies &&
         !c.sample().operands.empty();
}

Verdict batch_is_the_op(const Case& c) {
  const std::size_t count = c.sample().operands.size();
  std::vector<std::vector<bool>> choices = {std::vector<bool>(count, true)};
  for (std::size_t i = 0; count > 1 && i < count; ++i) {
    choices.emplace_back(count, false);
    choices.back()[i] = true;
  }
  for (const std::vector<bool>& is_batched : choices) {
    for (Values values : {Values::ordinary, Values::special}) {
      const Verdict verdict = rows_are_the_op(c, is_batched, values);
      if (verdict) return verdict;
    }
  }
  return std::nullopt;
}

}  // namespace tessera::testing
