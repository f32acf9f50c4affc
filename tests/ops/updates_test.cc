// Sums of an array and an update of zeros. They become updates of the array.
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "base/sanitized.h"
#include "compile/reference/interpret.h"
#include "ops/control/control.h"
#include "ops/emit.h"
#include "ops/record.h"
#include "ops/rules.h"
#include "tests/ops/arrays.h"

namespace tessera {
namespace {

using ir::Builder;
using ir::Function;
using ir::ValueId;

constexpr std::int64_t kRows = 16, kColumns = 1024;
const Type kTable = {.dtype = DType::f32, .shape = {kRows, kColumns}};

/// The number of sums of whole arrays, including those in bodies.
std::size_t whole_sums(const Function& f) {
  std::size_t count = 0;
  for (const ir::Equation& equation : f.equations) {
    const bool is_sum = *equation.op->name == "add" || *equation.op->name == "add_any";
    count += is_sum && f.type(equation.results[0]) == kTable ? 1U : 0U;
    for (const Function* body : ir::bodies_of(equation)) count += whole_sums(*body);
  }
  return count;
}

TEST(Updates, OfZerosChangeASlice) {
  const Function f = ir::parse(
      R"(function main[mesh="none", grains=8](%0: f32[8], %1: f32[2], %2: f32[1], %3: i32[]) {
  %4: f32[] = constant[dtype=f32, shape=[], value=0.0]
  %5: f32[8] = broadcast_in_dim[dims=[], shape=[8]] %4
  %6: f32[8] = add %0, %5
  %7: f32[8] = dynamic_update_slice %5, %1, %3
  %8: f32[8] = add %6, %7
  %9: f32[8] = pad[high=[2], interior=[0], low=[5]] %2, %4
  %10: f32[8] = add %9, %8
  return %10
}
)");
  EXPECT_EQ(ir::print(ops::add_updates_in_place(f)),
            R"(function main[mesh="none", grains=8](%0: f32[8], %1: f32[2], %2: f32[1], %3: i32[]) {
  %4: f32[] = constant[dtype=f32, shape=[], value=0.0]
  %5: f32[8] = broadcast_in_dim[dims=[], shape=[8]] %4
  %6: f32[8] = add %0, %5
  %7: f32[2] = dynamic_slice[sizes=[2]] %6, %3
  %8: f32[2] = add %7, %1
  %9: f32[8] = dynamic_update_slice %6, %8, %3
  %10: i32[] = constant[dtype=i32, shape=[], value=5.0]
  %11: f32[1] = dynamic_slice[sizes=[1]] %9, %10
  %12: f32[1] = add %11, %2
  %13: f32[8] = dynamic_update_slice %9, %12, %10
  return %13
}
)");
}

/// -0.0 + 0.0 is 0.0, so the sum stays a sum of whole arrays if the array may contain -0.0. The
/// same holds if the update is large, or if the other term is not an update of zeros.
TEST(Updates, StayWhereBitsOrTimeWouldSuffer) {
  for (const std::string lines : {"%3: f32[8] = pad[high=[7], interior=[0], low=[0]] %1, %2\n"
                                  "  %4: f32[8] = add %0, %3",
                                  "%3: f32[8] = exp %0\n  %4: f32[8] = add %3, %0"}) {
    const Function f = ir::parse(R"(function main[mesh="none", grains=8](%0: f32[8], %1: f32[1]) {
  %2: f32[] = constant[dtype=f32, shape=[], value=0.0]
  )" + lines + "\n  return %4\n}\n");
    EXPECT_EQ(ir::print(ops::add_updates_in_place(f)), ir::print(f));
  }
}

/// A program that adds updates of zeros, and other arrays, to a table.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint64_t seed) : random_(seed) {}

  Function make() {
    Function f;
    Builder b(f);
    const ValueId table = b.add_input(kTable);
    const ValueId x = b.add_input({.dtype = DType::f32, .shape = {kColumns}});
    const ValueId place = b.add_input({.dtype = DType::i32, .shape = {}});
    const ValueId start = random_() % 4 == 0 ? table : ops::full(b, 0.0, kTable);
    if (random_() % 2 == 0) {
      b.set_outputs({with_sums(b, start, x, place)});
      return f;
    }
    Function body;
    Builder inner(body);
    const ValueId carry = inner.add_input(kTable);
    const ValueId line = inner.add_input(b.type(x));
    const ValueId each = inner.add_input(b.type(place));
    inner.set_outputs({with_sums(inner, carry, line, each)});
    const auto slices = [&](ValueId id) {
      Shape shape = b.type(id).shape;
      shape.insert(shape.begin(), 3);
      Ints dims(shape.size() - 1);
      std::iota(dims.begin(), dims.end(), 1);
      return ops::broadcast_in_dim(b, id, dims, shape);
    };
    const ValueId numbers = ops::add(b, slices(place), ops::iota(b, DType::i32, {3}, 0));
    b.set_outputs(ops::scan(b, {.length = 3, .num_carry = 1},
                            std::make_shared<const Function>(std::move(body)),
                            {start, slices(x), numbers}));
    return f;
  }

 private:
  using Ints = ir::Ints;

  ValueId with_sums(Builder& b, ValueId table, ValueId x, ValueId place) {
    for (int i = 0; i < 4; ++i) {
      const ValueId other = update(b, x, place);
      table = random_() % 2 == 0 ? ops::add(b, table, other) : ops::add(b, other, table);
    }
    return table;
  }

  ValueId update(Builder& b, ValueId x, ValueId place) {
    const ValueId zero = ops::scalar(b, 0.0, DType::f32);
    const ValueId start = ops::scalar(b, 0.0, DType::i32);
    switch (random_() % 5) {
      case 0: {
        const ValueId row = ops::reshape(b, x, {1, kColumns});
        return ops::dynamic_update_slice(b, ops::full(b, 0.0, kTable), row, {place, start});
      }
      case 1: {
        const ValueId row = ops::reshape(b, x, {1, kColumns});
        const auto low = static_cast<std::int64_t>(random_() % kRows);
        return ops::pad(b, row, zero, {low, 0}, {kRows - 1 - low, 0});
      }
      case 2: {  // several updates of a row, some of rows that do not exist
        const auto count = static_cast<std::int64_t>(random_() % 5);
        const Type numbers = {.dtype = DType::i32, .shape = {count}};
        const ValueId rows = ops::sub(b, ops::broadcast_in_dim(b, place, {}, numbers.shape),
                                      ops::full(b, static_cast<double>(random_() % 3), numbers));
        const ValueId indices =
            random_() % 2 == 0 ? rows : ops::mul(b, rows, ops::iota(b, DType::i32, {count}, 0));
        return ops::scatter_add(b, indices, ops::broadcast_in_dim(b, x, {1}, {count, kColumns}), 0,
                                kRows);
      }
      case 3: {  // along columns
        const ValueId indices = ops::broadcast_in_dim(b, place, {}, {2, 1});
        const ValueId few = ops::reshape(b, ops::slice(b, x, {0}, {kRows * 2}), {kRows, 2, 1});
        return ops::scatter_add(b, indices, few, 1, kColumns);
      }
      default:
        return ops::broadcast_in_dim(b, ops::neg(b, x), {1}, kTable.shape);
    }
  }

  std::mt19937_64 random_;
};

std::vector<ops::HostArray> random_inputs(const Function& f, std::mt19937& random) {
  std::vector<ops::HostArray> inputs;
  for (const ValueId id : f.inputs) {
    ops::HostArray& array = inputs.emplace_back(f.type(id));
    if (f.type(id).dtype == DType::i32) {
      array.data<std::int32_t>()[0] = static_cast<std::int32_t>(random() % 20) - 2;
      continue;
    }
    for (float& x : array.data<float>()) {
      x = random() % 3 == 0 ? -0.0F : std::ldexp(static_cast<float>(random()), -40);
    }
  }
  return inputs;
}

TEST(Updates, NeverChangeBits) {
  constexpr std::uint64_t kPrograms = num_cases(300);
  std::mt19937 random(11);
  std::size_t changed = 0;
  for (std::uint64_t program = 0; program < kPrograms; ++program) {
    SCOPED_TRACE(program);
    const Function f = RandomProgram(program).make();
    const Function updated = ops::add_updates_in_place(f);
    ASSERT_EQ(ir::print(ops::add_updates_in_place(updated)), ir::print(updated));
    changed += whole_sums(f) - whole_sums(updated);
    const std::vector<ops::HostArray> inputs = random_inputs(f, random);
    const auto expected = compile::interpret(f, inputs);
    const auto found = compile::interpret(updated, inputs);
    testing::expect_elements(testing::elements<float>(found[0]),
                             testing::elements<float>(expected[0]));
    ASSERT_FALSE(HasFailure()) << ir::print(f) << ir::print(updated);
  }
  EXPECT_GT(changed, kPrograms);
}

}  // namespace
}  // namespace tessera
