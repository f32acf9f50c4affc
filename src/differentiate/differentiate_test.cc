#include "differentiate/differentiate.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>

#include <tessera/error.h>

#include "compile/reference/interpret.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "ops/emit.h"
#include "ops/ops.h"

namespace tessera::differentiate {
namespace {

using ir::Builder;
using ir::Function;
using ir::ValueId;
using ops::HostArray;

/// A function under construction. Its inputs are f32 unless stated otherwise.
struct Program {
  Function function;
  Builder b{function};

  ValueId input(Shape shape, DType dtype = DType::f32) {
    return b.add_input({dtype, std::move(shape)});
  }
  void line(std::uint32_t number) { b.set_span(Span("model.cc", number)); }
  Function gradient(ValueId loss, const std::vector<std::size_t>& wrt) {
    b.set_outputs({loss});
    Function result = value_and_grad(function, wrt);
    ir::verify(result, "value_and_grad");
    return result;
  }
};

std::map<std::string, int> count_ops(const Function& function) {
  std::map<std::string, int> counts;
  for (const ir::Equation& equation : function.equations) {
    counts[std::string(ir::op_name(*equation.op))] += 1;
  }
  return counts;
}

HostArray numbers(std::vector<float> values, Shape shape) {
  HostArray result({DType::f32, std::move(shape)});
  std::copy(values.begin(), values.end(), result.data<float>().begin());
  return result;
}

// --- which equations -----------------------------------------------------------------------------

TEST(ValueAndGrad, CotangentsAreAddedInReverseOrderOfUses) {
  Program p;
  const ValueId x = p.input({2});
  const ValueId w = p.input({2});
  p.line(1);
  const ValueId first = ops::exp(p.b, x);
  p.line(2);
  const ValueId second = ops::sin(p.b, x);
  p.line(3);
  const ValueId third = ops::mul(p.b, x, w);
  p.line(4);
  const ValueId loss =
      ops::reduce_sum(p.b, ops::add(p.b, ops::add(p.b, first, second), third), {0});
  // The gradient is (w + cos x) + exp x: the use that comes last is added first.
  EXPECT_EQ(ir::print(p.gradient(loss, {0})),
            "function main[mesh=\"none\", grains=8](%0: f32[2], %1: f32[2]) {\n"
            "  %2: f32[2] = exp %0  # model.cc:1\n"
            "  %3: f32[2] = sin %0  # model.cc:2\n"
            "  %4: f32[2] = mul %0, %1  # model.cc:3\n"
            "  %5: f32[2] = add %2, %3  # model.cc:4\n"
            "  %6: f32[2] = add %5, %4  # model.cc:4\n"
            "  %7: f32[] = reduce_sum[dims=[0]] %6  # model.cc:4\n"
            "  %8: f32[] = constant[dtype=f32, shape=[], value=1.0]\n"
            "  %9: f32[2] = broadcast_in_dim[dims=[], shape=[2]] %8  # model.cc:4\n"
            "  %10: f32[2] = mul %9, %1  # model.cc:3\n"
            "  %11: f32[2] = cos %0  # model.cc:2\n"
            "  %12: f32[2] = mul %9, %11  # model.cc:2\n"
            "  %13: f32[2] = add_any %10, %12  # model.cc:2\n"
            "  %14: f32[2] = mul %9, %2  # model.cc:1\n"
            "  %15: f32[2] = add_any %13, %14  # model.cc:1\n"
            "  return %7, %15\n}\n");
}

TEST(ValueAndGrad, NothingIsComputedForPathsThatNobodyAsksFor) {
  Program p;
  const ValueId x = p.input({3, 4});
  const ValueId w = p.input({4, 5});
  const ValueId ids = p.input({2}, DType::i32);
  const ValueId data = ops::exp(p.b, ops::sin(p.b, x));  // does not depend on w
  const ValueId y = ops::dot_general(p.b, data, w, {{1}, {0}, {}, {}});
  const ValueId rows = ops::gather(p.b, y, ids, 0);
  const ValueId side = p.b.emit("tanh", {}, {y});  // does not lead to the loss
  const ValueId loss = ops::reduce_sum(p.b, rows, {0, 1});
  p.b.set_outputs({loss, side});
  const Function f = value_and_grad(p.function, {1});
  ir::verify(f, "value_and_grad");
  const std::map<std::string, int> counts = count_ops(f);
  EXPECT_EQ(counts.at("dot_general"), 2) << ir::print(f);  // forward, and the gradient of w
  EXPECT_EQ(counts.at("exp"), 1);
  EXPECT_EQ(counts.at("sin"), 1);
  EXPECT_EQ(counts.count("cos"), 0U);
  EXPECT_EQ(counts.at("tanh"), 1);
  EXPECT_EQ(counts.count("sub"), 0U);  // from the derivative of tanh
  ASSERT_EQ(f.outputs.size(), 3U);
  EXPECT_EQ(f.type(f.outputs[2]), (Type{DType::f32, {4, 5}}));
}

TEST(ValueAndGrad, IntegersStopGradients) {
  Program p;
  const ValueId x = p.input({2});
  const ValueId whole = ops::convert(p.b, ops::exp(p.b, x), DType::i32);
  const ValueId back = ops::convert(p.b, whole, DType::f32);
  const ValueId stopped = p.b.emit("stop_gradient", {}, {ops::cos(p.b, x)});
  const ValueId loss = ops::reduce_sum(p.b, ops::add(p.b, back, ops::mul(p.b, stopped, x)), {0});
  const Function f = p.gradient(loss, {0});
  const std::map<std::string, int> counts = count_ops(f);
  EXPECT_EQ(counts.count("sin"), 0U) << ir::print(f);
  EXPECT_EQ(counts.at("exp"), 1);
  EXPECT_EQ(counts.at("mul"), 2);  // forward, and in the gradient, by the stopped factor
  EXPECT_EQ(counts.at("add"), 1);  // no second cotangent to add
}

TEST(ValueAndGrad, UnreachableInputsHaveZeros) {
  Program p;
  const ValueId x = p.input({2});
  p.input({3});
  const Function f = p.gradient(ops::reduce_sum(p.b, x, {0}), {1, 0});
  const std::vector<HostArray> out =
      compile::interpret(f, {numbers({5, 6}, {2}), numbers({1, 2, 3}, {3})});
  ASSERT_EQ(out.size(), 3U);
  EXPECT_EQ(out[0].data<float>()[0], 11.0F);
  EXPECT_EQ(out[1].type(), (Type{DType::f32, {3}}));
  for (float g : out[1].data<float>()) EXPECT_EQ(g, 0.0F);
  for (float g : out[2].data<float>()) EXPECT_EQ(g, 1.0F);
}

TEST(ValueAndGrad, TheLossMayBeTheInput) {
  Program p;
  const ValueId x = p.input({});
  const std::vector<HostArray> out = compile::interpret(p.gradient(x, {0}), {numbers({7}, {})});
  EXPECT_EQ(out[0].data<float>()[0], 7.0F);
  EXPECT_EQ(out[1].data<float>()[0], 1.0F);
}

// --- values --------------------------------------------------------------------------------------

TEST(ValueAndGrad, GradientOfAGradient) {
  // f = sum(x^3 sin x): f' = 3 x^2 sin x + x^3 cos x, f'' = 6 x sin x + 6 x^2 cos x - x^3 sin x.
  Program p;
  const ValueId x = p.b.add_input({DType::f64, {3}});
  const ValueId cube = ops::mul(p.b, ops::mul(p.b, x, x), x);
  const ValueId loss = ops::reduce_sum(p.b, ops::mul(p.b, cube, ops::sin(p.b, x)), {0});
  Function first = p.gradient(loss, {0});
  Builder b(first);
  const ValueId total = ops::reduce_sum(b, first.outputs[1], {0});
  b.set_outputs({total, first.outputs[1]});
  const Function second = value_and_grad(first, {0});
  ir::verify(second, "value_and_grad");
  HostArray at({DType::f64, {3}});
  const double values[] = {-1.25, 0.5, 2.0};
  std::copy_n(values, 3, at.data<double>().begin());
  const std::vector<HostArray> out = compile::interpret(second, {at});
  for (std::size_t i = 0; i < 3; ++i) {
    const double v = values[i];
    const double s = std::sin(v);
    const double c = std::cos(v);
    EXPECT_NEAR(out[1].data<double>()[i], 3 * v * v * s + v * v * v * c, 1e-12);
    EXPECT_NEAR(out[2].data<double>()[i], 6 * v * s + 6 * v * v * c - v * v * v * s, 1e-12);
  }
}

// --- errors --------------------------------------------------------------------------------------

TEST(ValueAndGrad, TheLossIsAFloatScalar) {
  Program vector;
  EXPECT_THROW(vector.gradient(vector.input({2}), {0}), UserError);
  Program integer;
  EXPECT_THROW(integer.gradient(integer.input({}, DType::i32), {0}), UserError);
}

/// The gradient of all_reduce(x) * x if `is_in_the_way`, otherwise of all_reduce(y) * x. The
/// all_reduce is at line 9.
Function without_derivative(bool is_in_the_way, std::vector<std::size_t> wrt) {
  Program p;
  const ValueId x = p.input({});
  const ValueId y = p.input({});
  p.line(9);
  const ValueId reduced =
      p.b.emit(ops::all_reduce_op, {{"reduction", std::string("sum")}}, {is_in_the_way ? x : y});
  p.line(10);
  return p.gradient(ops::mul(p.b, reduced, x), wrt);
}

TEST(ValueAndGrad, AnOpWithoutDerivativeNamesTheLine) {
  try {
    without_derivative(true, {0});
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_EQ(error.mistake().where, Span("model.cc", 9));
    EXPECT_NE(error.mistake().what.find("all_reduce"), std::string::npos) << error.what();
  }
  // This is no error if no derivative has to pass through the all_reduce.
  EXPECT_EQ(without_derivative(false, {0}).outputs.size(), 2U);
  EXPECT_THROW(without_derivative(false, {1}), UserError);
}

/// x times the result of a loop over y. Another carry of the loop holds a power of x.
TEST(ValueAndGrad, ALoopIsNoHindranceWhereNoDerivativeHasToPass) {
  const Function function =
      ir::parse(R"(function main[mesh="none", grains=8](%0: f32[], %1: f32[]) {
  %2: i32[] = constant[dtype=i32, shape=[], value=0.0]
  %3: i32[], %4: f32[], %5: f32[] = while[body={(%0: f32[], %1: i32[], %2: f32[], %3: f32[]) {
    %4: i32[] = constant[dtype=i32, shape=[], value=1.0]
    %5: i32[] = add %1, %4
    %6: f32[] = add %2, %2
    %7: f32[] = mul %3, %0
    return %5, %6, %7
  }}, condition={(%0: f32[], %1: i32[], %2: f32[], %3: f32[]) {
    %4: i32[] = constant[dtype=i32, shape=[], value=3.0]
    %5: bool[] = compare[direction="lt"] %1, %4
    return %5
  }}, num_consts=1] %0, %2, %1, %0
  %6: f32[] = mul %0, %4
  return %6
})");
  const std::vector<HostArray> out =
      compile::interpret(value_and_grad(function, {0}), {numbers({5}, {}), numbers({7}, {})});
  EXPECT_EQ(out[0].data<float>()[0], 5.0F * 56.0F);
  EXPECT_EQ(out[1].data<float>()[0], 56.0F);
  EXPECT_THROW(value_and_grad(function, {1}), UserError);
}

}  // namespace
}  // namespace tessera::differentiate
