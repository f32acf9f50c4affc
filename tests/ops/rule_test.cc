// Choices that the rules make: how tied values share a cotangent, how factors are written as text,
// no needless transposes, and messages that say what to write instead.
#include <algorithm>
#include <gtest/gtest.h>

#include <tessera/error.h>

#include "differentiate/differentiate.h"
#include "ops/emit.h"
#include "ops/record.h"
#include "tests/ops/arrays.h"

namespace tessera {
namespace {

using ir::Builder;
using ir::ValueId;
using testing::array;
using testing::elements;

ir::Ints all_dims(Builder& b, ValueId x) {
  ir::Ints dims(b.type(x).shape.size());
  for (std::size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<std::int64_t>(i);
  return dims;
}

/// The gradients of the sum of emit's result with respect to all inputs.
ir::Function gradient_function(const std::vector<Type>& types, const testing::EmitOne& emit) {
  ir::Function function;
  Builder b(function);
  std::vector<ValueId> inputs;
  std::vector<std::size_t> wrt;
  for (const Type& type : types) {
    if (is_float(type.dtype)) wrt.push_back(inputs.size());
    inputs.push_back(b.add_input(type));
  }
  const ValueId result = emit(b, inputs);
  b.set_outputs({ops::reduce_sum(b, result, all_dims(b, result))});
  return differentiate::value_and_grad(function, wrt);
}

std::vector<std::vector<float>> gradients(const std::vector<ops::HostArray>& inputs,
                                          const testing::EmitOne& emit) {
  std::vector<Type> types;
  for (const ops::HostArray& input : inputs) types.push_back(input.type());
  const auto outputs = compile::interpret(gradient_function(types, emit), inputs);
  std::vector<std::vector<float>> result;
  for (std::size_t i = 1; i < outputs.size(); ++i) result.push_back(elements<float>(outputs[i]));
  return result;
}

using Floats = std::vector<float>;

TEST(VjpRules, TiesShare) {
  const auto of_max = gradients({array<float>({1, 2, 3}), array<float>({2, 2, 2})},
                                [](Builder& b, auto in) { return ops::max(b, in[0], in[1]); });
  EXPECT_EQ(of_max, (std::vector<Floats>{{0, 0.5f, 1}, {1, 0.5f, 0}}));
  const auto of_reduce =
      gradients({array<float>({1, 3, 3, 4, 0, 0}, {2, 3})},
                [](Builder& b, auto in) { return ops::reduce_max(b, in[0], {1}); });
  EXPECT_EQ(of_reduce, (std::vector<Floats>{{0, 0.5f, 0.5f, 1, 0, 0}}));
}

TEST(VjpRules, PowersOfZero) {
  const auto of_pow = gradients({array<float>({0, 0, 2}), array<float>({0, 2, 3})},
                                [](Builder& b, auto in) { return ops::pow(b, in[0], in[1]); });
  EXPECT_EQ(of_pow[0], (Floats{0, 0, 12}));
  EXPECT_FLOAT_EQ(of_pow[1][2], 8.0f * std::log(2.0f));
  EXPECT_EQ(of_pow[1][0], 0.0f);
}

TEST(VjpRules, IndicesOutsideGiveNoGradient) {
  const auto of_gather =
      gradients({array<float>({1, 2, 3}), array<std::int32_t>({2, 7, 2})},
                [](Builder& b, auto in) { return ops::gather(b, in[0], in[1], 0); });
  EXPECT_EQ(of_gather, (std::vector<Floats>{{0, 0, 2}}));
  const auto of_scatter =
      gradients({array<std::int32_t>({2, 7, -1}), array<float>({1, 2, 3})},
                [](Builder& b, auto in) { return ops::scatter_add(b, in[0], in[1], 0, 3); });
  EXPECT_EQ(of_scatter, (std::vector<Floats>{{1, 0, 0}}));
}

TEST(VjpRules, PaddingGradientSkipsTheInside) {
  const auto of_pad =
      gradients({array<float>({1, 2}), array<float>({5}, {})},
                [](Builder& b, auto in) { return ops::pad(b, in[0], in[1], {1}, {2}); });
  EXPECT_EQ(of_pad, (std::vector<Floats>{{1, 1}, {3}}));
}

TEST(VjpRules, StopGradientStops) {
  const auto grads = gradients({array<float>({3})}, [](Builder& b, auto in) {
    return ops::mul(b, in[0], b.emit("stop_gradient", {}, {in[0]}));
  });
  EXPECT_EQ(grads, (std::vector<Floats>{{3}}));
}

std::int64_t count_ops(const ir::Function& function, std::string_view op) {
  return std::count_if(function.equations.begin(), function.equations.end(),
                       [&](const ir::Equation& equation) { return *equation.op->name == op; });
}

TEST(VjpRules, MatmulsNeedNoTranspose) {
  const std::vector<std::pair<std::vector<Type>, ops::DotDims>> products = {
      {{{DType::f32, {2, 5, 6}}, {DType::f32, {6, 3}}}, {.lhs_contract = {2}, .rhs_contract = {0}}},
      {{{DType::f32, {2, 4, 5, 6}}, {DType::f32, {2, 4, 7, 6}}},
       {.lhs_contract = {3}, .rhs_contract = {3}, .lhs_batch = {0, 1}, .rhs_batch = {0, 1}}}};
  for (const auto& [types, dims] : products) {
    const ir::Function function = gradient_function(
        types, [&](Builder& b, auto in) { return ops::dot_general(b, in[0], in[1], dims); });
    EXPECT_EQ(count_ops(function, "dot_general"), 3);
    EXPECT_EQ(count_ops(function, "transpose"), 0);
  }
}

std::string factors_text(std::string_view name, const ir::Attributes& attributes,
                         const std::vector<Type>& operands) {
  const ops::OpRecord& op = ir::op_named(name);
  return ops::to_string(
      (*op.factors)(attributes, operands, ir::infer_types(op, attributes, operands, {})));
}

TEST(Factors, ReadAsText) {
  const Type matrix{DType::f32, {4, 6}};
  const ir::Ints none;
  EXPECT_EQ(factors_text("add", {}, {matrix, matrix}), "a b, a b -> a b");
  EXPECT_EQ(factors_text("dot_general",
                         {{"lhs_batch", none},
                          {"lhs_contract", ir::Ints{1}},
                          {"rhs_batch", none},
                          {"rhs_contract", ir::Ints{0}}},
                         {matrix, {DType::f32, {6, 8}}}),
            "a c, c b -> a b | c: sum");
  EXPECT_EQ(factors_text("reshape", {{"shape", ir::Ints{24}}}, {matrix}), "a b -> (a b)");
  EXPECT_EQ(factors_text("reshape", {{"shape", ir::Ints{8, 3}}}, {matrix}), "a (b c) -> (a b) c");
  EXPECT_EQ(factors_text("broadcast_in_dim", {{"dims", ir::Ints{0, 1}}, {"shape", ir::Ints{4, 5}}},
                         {{DType::f32, {4, 1}}}),
            "a 1 -> a b");
  EXPECT_EQ(factors_text("reduce_max", {{"dims", ir::Ints{1, 0}}}, {matrix}),
            "a b -> () | b: max, a: max");
  const std::int64_t zero = 0;
  const std::int64_t one = 1;
  EXPECT_EQ(
      factors_text("gather", {{"dim", zero}, {"num_batch", zero}}, {matrix, {DType::i32, {5}}}),
      "a b, c -> c b | a: bit_or");
  EXPECT_EQ(
      factors_text("gather", {{"dim", one}, {"num_batch", one}}, {matrix, {DType::i32, {4, 5}}}),
      "a b, a c -> a c | b: bit_or");
}

std::string message_of(const testing::EmitOne& emit, const std::vector<Type>& types) {
  ir::Function function;
  Builder b(function);
  b.set_span({"model.cc", 12});
  std::vector<ValueId> inputs;
  for (const Type& type : types) inputs.push_back(b.add_input(type));
  try {
    emit(b, inputs);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(ShapeRules, SayWhatToWriteInstead) {
  EXPECT_EQ(
      message_of([](Builder& b, auto in) { return ops::add(b, in[0], in[1]); },
                 {{DType::f32, {2, 3}}, {DType::f32, {3}}}),
      "add: operands have different shapes\n"
      "  where:  model.cc:12\n"
      "  found:  f32[2,3], f32[3]\n"
      "  wanted: the same shape for all operands\n"
      "  cure:   broadcast the smaller one with broadcast_to, or transpose or reshape one of them");
  const std::string dot = message_of(
      [](Builder& b, auto in) {
        return ops::dot_general(b, in[0], in[1], {.lhs_contract = {1}, .rhs_contract = {0}});
      },
      {{DType::f32, {8, 16}}, {DType::f32, {17, 4}}});
  EXPECT_NE(dot.find("dimension 1 of the left operand (size 16) does not match dimension 0 of the "
                     "right operand (size 17)"),
            std::string::npos);
  EXPECT_NE(message_of([](Builder& b, auto in) { return ops::exp(b, in[0]); }, {{DType::i32, {2}}})
                .find("astype(x, DType::f32)"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
