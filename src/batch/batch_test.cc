// Which values are batched, and ops with nested functions. tests/ops/batch_test.cc tests rows of
// all ops.
#include "batch/batch.h"

#include <gtest/gtest.h>

#include <tessera/error.h>

#include "compile/reference/interpret.h"
#include "ir/text.h"
#include "ops/ops.h"
#include "tests/ops/arrays.h"

namespace tessera {
namespace {

using batch::Batched;
using testing::array;
using testing::elements;
using Floats = std::vector<float>;

ir::Function parsed(const std::string& rest) {
  return ir::parse("function main[mesh=\"none\", grains=8]" + rest);
}

std::string printed(const ir::Function& function) { return ir::print(function); }

std::size_t count(const ir::Function& function, const ops::OpRecord& op) {
  std::size_t number = 0;
  for (const ir::Equation& equation : function.equations) number += equation.op == &op ? 1 : 0;
  return number;
}

TEST(Batch, LeavesAloneWhatNoBatchReaches) {
  const ir::Function function = parsed(R"((%0: f32[4], %1: f32[4]) {
    %2: f32[4] = exp %0  # model.cc:3
    %3: f32[4] = add %1, %2  # model.cc:4
    return %2, %3
  })");
  const Batched batched = batch::batch(function, {false, true}, 5);
  EXPECT_EQ(batched.is_output_batched, (std::vector<bool>{false, true}));
  EXPECT_EQ(printed(batched.function), printed(parsed(R"((%0: f32[4], %1: f32[5,4]) {
    %2: f32[4] = exp %0  # model.cc:3
    %3: f32[5,4] = broadcast_in_dim[dims=[1], shape=[5,4]] %2  # model.cc:4
    %4: f32[5,4] = add %1, %3  # model.cc:4
    return %2, %4
  })")));
  const Batched repeated = batch::batch(function, {false, true}, 5, {true});
  EXPECT_EQ(repeated.is_output_batched, (std::vector<bool>{true, true}));
  EXPECT_EQ(to_string(repeated.function.type(repeated.function.outputs[0])), "f32[5,4]");
}

TEST(Batch, LeavesTheBatchDimensionOfConstraintsOpen) {
  const std::string header = "function main[mesh=\"a=2,b=2\", grains=8]";
  const ir::Function function = ir::parse(header + R"((%0: f32[4,8]) {
    %1: f32[4,8] = sharding_constraint[sharding=<{a},{?}>] %0
    return %1
  })");
  const Batched batched = batch::batch(function, {true}, 5);
  EXPECT_EQ(printed(batched.function), printed(ir::parse(header + R"((%0: f32[5,4,8]) {
    %1: f32[5,4,8] = sharding_constraint[sharding=<{?},{a},{?}>] %0
    return %1
  })")));
}

TEST(Batch, MultipliesWithSharedWeightsAtOnce) {
  const ir::Function function = parsed(R"((%0: f32[4,6], %1: f32[6,3]) {
  %2: f32[4,3] = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[0]] %0, %1
    return %2
  })");
  const ir::Function shared = batch::batch(function, {true, false}, 5).function;
  EXPECT_EQ(shared.equations.size(), 1U);
  EXPECT_EQ(shared.equations[0].attributes.ints("lhs_batch"), ir::Ints{});
  const ir::Function own = batch::batch(function, {true, true}, 5).function;
  EXPECT_EQ(own.equations.size(), 1U);
  EXPECT_EQ(own.equations[0].attributes.ints("lhs_batch"), ir::Ints{0});
}

TEST(Batch, KeepsSharedOperandsOfABarrier) {
  const ir::Function function = parsed(R"((%0: f32[4], %1: f32[6]) {
    %2: f32[4], %3: f32[6] = optimization_barrier %0, %1
    return %2, %3
  })");
  const Batched batched = batch::batch(function, {true, false}, 5);
  EXPECT_EQ(batched.is_output_batched, (std::vector<bool>{true, false}));
}

TEST(Batch, FindsOutWhichCarriesAreBatched) {
  // The second carry becomes batched through the first; the third never does.
  const std::string body = R"({(%0: f32[2], %1: f32[2], %2: i32[], %3: f32[2]) {
      %4: f32[2] = mul %0, %3
      %5: f32[2] = add %1, %0
      %6: i32[] = constant[dtype=i32, shape=[], value=2.0]
      %7: i32[] = add %2, %6
      return %4, %5, %7, %2
    }})";
  const ir::Function function = parsed(
      "(%0: f32[2], %1: f32[2], %2: i32[], %3: f32[3,2]) {\n"
      "  %4: f32[2], %5: f32[2], %6: i32[], %7: i32[3] = scan[body=" +
      body +
      ", length=3, num_carry=3, num_consts=0, reverse=false] %0, %1, %2, %3\n"
      "  return %4, %5, %6, %7\n"
      "}");
  const Batched batched = batch::batch(function, {true, false, false, false}, 2);
  EXPECT_EQ(batched.is_output_batched, (std::vector<bool>{true, true, false, false}));
  const auto found = compile::interpret(
      batched.function, {array<float>({1, 2, 3, 4}, {2, 2}), array<float>({0, 0}),
                         array<std::int32_t>({5}, {}), array<float>({1, 1, 2, 2, 3, 3}, {3, 2})});
  EXPECT_EQ(elements<float>(found[0]), (Floats{6, 12, 18, 24}));
  EXPECT_EQ(elements<float>(found[1]), (Floats{4, 8, 12, 16}));
  EXPECT_EQ(elements<std::int32_t>(found[2]), (std::vector<std::int32_t>{11}));
  EXPECT_EQ(elements<std::int32_t>(found[3]), (std::vector<std::int32_t>{5, 7, 9}));
}

const char* const kDoubling = R"((%0: i32[], %1: i32[], %2: f32[2]) {
    %3: i32[], %4: f32[2] = while[body={(%0: i32[], %1: i32[], %2: f32[2]) {
      %3: i32[] = constant[dtype=i32, shape=[], value=1.0]
      %4: i32[] = add %1, %3
      %5: f32[2] = add %2, %2
      return %4, %5
    }}, condition={(%0: i32[], %1: i32[], %2: f32[2]) {
      %3: bool[] = compare[direction="lt"] %1, %0
      return %3
    }}, num_consts=1] %0, %1, %2
    return %3, %4
  })";

TEST(Batch, LoopsUntilEveryElementIsDone) {
  const Batched batched = batch::batch(parsed(kDoubling), {true, false, false}, 3);
  EXPECT_EQ(batched.is_output_batched, (std::vector<bool>{true, true}));
  const auto found = compile::interpret(
      batched.function,
      {array<std::int32_t>({3, 0, 1}), array<std::int32_t>({0}, {}), array<float>({1, 3})});
  EXPECT_EQ(elements<std::int32_t>(found[0]), (std::vector<std::int32_t>{3, 0, 1}));
  EXPECT_EQ(elements<float>(found[1]), (Floats{8, 24, 1, 3, 2, 6}));
}

TEST(Batch, KeepsALoopThatAllElementsShare) {
  const Batched batched = batch::batch(parsed(kDoubling), {false, false, true}, 3);
  EXPECT_EQ(batched.is_output_batched, (std::vector<bool>{false, true}));
  EXPECT_EQ(batched.function.equations.size(), 1U);
}

TEST(Batch, RunsOneBranchUnlessElementsTakeDifferentOnes) {
  const ir::Function function = parsed(R"((%0: i32[], %1: f32[2]) {
    %2: f32[2], %3: i32[] = cond[branches={(%0: f32[2]) {
      %1: i32[] = constant[dtype=i32, shape=[], value=1.0]
      return %0, %1
    }, (%0: f32[2]) {
      %1: f32[2] = neg %0
      %2: i32[] = constant[dtype=i32, shape=[], value=2.0]
      return %1, %2
    }, (%0: f32[2]) {
      %1: f32[2] = exp %0
      %2: i32[] = constant[dtype=i32, shape=[], value=3.0]
      return %1, %2
    }}] %0, %1
    return %2, %3
  })");
  const Batched shared = batch::batch(function, {false, true}, 4);
  EXPECT_EQ(count(shared.function, ops::cond_op), 1U);
  EXPECT_EQ(shared.is_output_batched, (std::vector<bool>{true, false}));
  const Batched own = batch::batch(function, {true, false}, 4);
  EXPECT_EQ(count(own.function, ops::cond_op), 0U);
  const auto found =
      compile::interpret(own.function, {array<std::int32_t>({-5, 1, 7, 0}), array<float>({0, 0})});
  EXPECT_EQ(elements<std::int32_t>(found[1]), (std::vector<std::int32_t>{1, 2, 3, 1}));
  EXPECT_EQ(elements<float>(found[0]), (Floats{0, 0, -0.0F, -0.0F, 1, 1, 0, 0}));
}

TEST(Batch, AddsUpTheCotangentsOfASharedArgument) {
  // backward gives the first argument a cotangent that depends only on the residual.
  const ir::Function function = parsed(R"((%0: f32[2], %1: f32[2]) {
    %2: f32[2] = custom_vjp[backward={(%0: f32[2], %1: f32[2]) {
      %2: f32[2] = mul %0, %1
      return %0, %2
    }}, forward={(%0: f32[2], %1: f32[2]) {
      %2: f32[2] = mul %0, %1
      return %2, %0
    }}, num_args=2, primal={(%0: f32[2], %1: f32[2]) {
      %2: f32[2] = mul %0, %1
      return %2
    }}] %0, %1
    return %2
  })");
  const ir::Function batched = batch::batch(function, {false, true}, 3).function;
  const ir::Function& backward = batched.equations[0].attributes.body("backward");
  const auto found = compile::interpret(
      backward, {array<float>({1, 10}), array<float>({1, 2, 3, 4, 5, 6}, {3, 2})});
  EXPECT_EQ(elements<float>(found[0]), (Floats{3, 30}));
  EXPECT_EQ(elements<float>(found[1]), (Floats{1, 20, 3, 40, 5, 60}));
}

TEST(Batch, ErrorsNameTheOp) {
  const ir::Function function = parsed(R"((%0: f32[4]) {
    %1: f32[4] = all_gather %0  # model.cc:7
    return %1
  })");
  try {
    batch::batch(function, {true}, 2);
    FAIL() << "no UserError";
  } catch (const UserError& error) {
    EXPECT_EQ(error.mistake().what, "vmap: all_gather cannot be batched");
    EXPECT_EQ(to_string(error.mistake().where), "model.cc:7");
  }
}

}  // namespace
}  // namespace tessera
