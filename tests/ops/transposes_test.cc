// Transposes of elementwise work on constants and broadcasts.
#include <gtest/gtest.h>
#include <random>

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

std::size_t count_of(const Function& function, std::string_view op) {
  std::size_t count = 0;
  for (const ir::Equation& equation : function.equations) {
    count += *equation.op->name == op ? 1U : 0U;
    for (const Function* body : ir::bodies_of(equation)) count += count_of(*body, op);
  }
  return count;
}

Function without_transposes(const Function& function) {
  return ir::run_passes(ops::simplify_passes(), function, {});
}

TEST(Transposes, OfOuterProductsAreOuterProducts) {
  const Function f = ir::parse(R"(function main[mesh="none", grains=8](%0: f32[3], %1: f32[2]) {
  %2: f32[3,2] = broadcast_in_dim[dims=[0], shape=[3,2]] %0
  %3: f32[3,2] = broadcast_in_dim[dims=[1], shape=[3,2]] %1
  %4: f32[3,2] = mul %2, %3
  %5: f32[2,3] = transpose[permutation=[1,0]] %4
  return %5
}
)");
  EXPECT_EQ(ir::print(without_transposes(f)),
            R"(function main[mesh="none", grains=8](%0: f32[3], %1: f32[2]) {
  %2: f32[2,3] = broadcast_in_dim[dims=[1], shape=[2,3]] %0
  %3: f32[2,3] = broadcast_in_dim[dims=[0], shape=[2,3]] %1
  %4: f32[2,3] = mul %2, %3
  return %4
}
)");
}

/// Transposes move in the bodies of loops and branches, too.
TEST(Transposes, InBodiesMoveToo) {
  const Function f =
      ir::parse(R"(function main[mesh="none", grains=8](%0: f32[2,3], %1: f32[4,3], %2: f32[4,2]) {
  %3: f32[2,3] = scan[body={(%0: f32[2,3], %1: f32[3], %2: f32[2]) {
    %3: f32[3,2] = broadcast_in_dim[dims=[0], shape=[3,2]] %1
    %4: f32[3,2] = broadcast_in_dim[dims=[1], shape=[3,2]] %2
    %5: f32[3,2] = mul %3, %4
    %6: f32[2,3] = transpose[permutation=[1,0]] %5
    %7: f32[2,3] = add %0, %6
    return %7
  }}, length=4, num_carry=1, num_consts=0, reverse=false] %0, %1, %2
  return %3
}
)");
  EXPECT_EQ(count_of(without_transposes(f), "transpose"), 0U);
}

/// These transposes stay. Otherwise a value that is read in both orders would be computed twice,
/// and an array would be read along columns.
TEST(Transposes, OfWhatIsReadElsewhereAndOfArraysStay) {
  const Function shared =
      ir::parse(R"(function main[mesh="none", grains=8](%0: f32[3], %1: f32[3,2]) {
  %2: f32[3,2] = broadcast_in_dim[dims=[0], shape=[3,2]] %0
  %3: f32[3,2] = exp %2
  %4: f32[2,3] = transpose[permutation=[1,0]] %3
  %5: f32[3,2] = mul %1, %2
  %6: f32[2,3] = transpose[permutation=[1,0]] %5
  return %3, %4, %6
}
)");
  EXPECT_EQ(count_of(without_transposes(shared), "transpose"), 2U);
}

/// A convolution can write its result with its dimensions in another order, except for the
/// features.
TEST(Transposes, OfWhatIsMadeOfAConvolutionComeBeforeIt) {
  const auto transposed_dtype = [](const std::string& permutation, const std::string& shape) {
    const Function f =
        ir::parse(R"(function main[mesh="none", grains=8](%0: bf16[2,3,4,2], %1: bf16[2,1,2,3]) {
  %2: f32[2,3,4,3] = conv[dilation=[1], high=[0], low=[0], spread=[1], stride=[1]] %0, %1
  %3: bf16[2,3,4,3] = convert[dtype=bf16] %2
  %4: bf16[)" + shape +
                  "] = transpose[permutation=" + permutation + R"(] %3
  return %4
}
)");
    const Function changed = without_transposes(f);
    EXPECT_EQ(count_of(changed, "transpose"), 1U);
    std::mt19937 random(7);
    std::vector<ops::HostArray> inputs;
    for (const ValueId id : f.inputs) {
      for (bfloat16& x : inputs.emplace_back(f.type(id)).data<bfloat16>())
        x = bfloat16(static_cast<float>(random() % 17) - 8);
    }
    const auto results = compile::interpret(f, inputs);
    const auto others = compile::interpret(changed, inputs);
    EXPECT_TRUE(std::ranges::equal(results[0].data<bfloat16>(), others[0].data<bfloat16>()));
    const auto is_transpose = [](const ir::Equation& e) { return *e.op->name == "transpose"; };
    return changed.type(std::ranges::find_if(changed.equations, is_transpose)->operands[0]).dtype;
  };
  EXPECT_EQ(transposed_dtype("[1,2,0,3]", "3,4,2,3"), DType::f32);
  EXPECT_EQ(transposed_dtype("[3,1,2,0]", "3,3,4,2"), DType::bf16);
}

/// Grows elementwise values and transposes of them from broadcasts and constants.
Function random_program(std::mt19937& random) {
  Function f;
  Builder b(f);
  const Shape shape = {2, 3, 4};
  std::vector<ValueId> values;
  const auto pick = [&] { return values[random() % values.size()]; };
  for (std::int64_t dim = 0; dim < 3; ++dim) {
    const ValueId vector = b.add_input({.dtype = DType::f32, .shape = {shape[ops::at(dim)]}});
    values.push_back(ops::broadcast_in_dim(b, vector, {dim}, shape));
  }
  const ValueId matrix = b.add_input({.dtype = DType::f32, .shape = {2, 4}});
  values.push_back(ops::broadcast_in_dim(b, matrix, {0, 2}, shape));
  values.push_back(ops::full(b, 1.5, {.dtype = DType::f32, .shape = shape}));
  std::vector<ValueId> outputs;
  for (int i = 0; i < 6; ++i) {
    values.push_back(random() % 2 == 0 ? ops::mul(b, pick(), pick()) : ops::sin(b, pick()));
    ir::Ints permutation = {0, 1, 2};
    std::shuffle(permutation.begin(), permutation.end(), random);
    outputs.push_back(ops::neg(b, ops::transpose(b, values.back(), permutation)));
    if (random() % 2 == 0) values.pop_back();
  }
  b.set_outputs(outputs);
  return f;
}

std::vector<ops::HostArray> random_integers(const Function& f, std::mt19937& random) {
  std::vector<ops::HostArray> inputs;
  for (const ValueId id : f.inputs) {
    for (float& x : inputs.emplace_back(f.type(id)).data<float>()) {
      x = static_cast<float>(random() % 17) - 8;
    }
  }
  return inputs;
}

TEST(Transposes, NeverChangeValues) {
  std::mt19937 random(7);
  std::size_t moved = 0;
  for (int program = 0; program < 200; ++program) {
    const Function f = random_program(random);
    const Function changed = without_transposes(f);
    ASSERT_EQ(ir::print(ops::move_transposes(changed)), ir::print(changed));
    moved += count_of(f, "transpose") - count_of(changed, "transpose");
    const std::vector<ops::HostArray> inputs = random_integers(f, random);
    const auto expected = compile::interpret(f, inputs);
    const auto found = compile::interpret(changed, inputs);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(found[i].type(), expected[i].type()) << "program " << program;
      ASSERT_EQ(testing::elements<float>(found[i]), testing::elements<float>(expected[i]))
          << "program " << program << "\n"
          << ir::print(f);
    }
  }
  EXPECT_GT(moved, 100U);
}

}  // namespace
}  // namespace tessera
