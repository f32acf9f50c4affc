// Corner cases of ops on windows, lines and computed positions: ties, zeros, NaN, out of range.
#include <cmath>
#include <gtest/gtest.h>

#include "compile/reference/interpret.h"
#include "differentiate/differentiate.h"
#include "ops/emit.h"
#include "tests/ops/arrays.h"

namespace tessera {
namespace {

using ir::Builder;
using ir::ValueId;
using testing::array;
using testing::elements;
using testing::evaluate;
using testing::expect_elements;
using testing::kInf;
using testing::kNan;
using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

/// The gradient, for the first input, of the sum of emit's result times the second input.
Floats gradient(const std::vector<ops::HostArray>& inputs, const testing::EmitOne& emit) {
  ir::Function function;
  Builder b(function);
  std::vector<ValueId> ids;
  for (const ops::HostArray& input : inputs) ids.push_back(b.add_input(input.type()));
  const ValueId weighted = ops::mul(b, emit(b, ids), ids.back());
  ir::Ints dims;
  for (std::int64_t i = 0; i < b.type(weighted).rank(); ++i) dims.push_back(i);
  b.set_outputs({ops::reduce_sum(b, weighted, dims)});
  return elements<float>(
      compile::interpret(differentiate::value_and_grad(function, {0}), inputs)[1]);
}

TEST(Conv, OfPatchesIsAMatrixProduct) {
  std::vector<float> x(2 * 6 * 4 * 3);
  std::vector<float> w(2 * 2 * 3 * 4);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i) * 1.7f);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::cos(static_cast<float>(i) * 2.3f);
  const auto conv =
      evaluate({array(x, {2, 6, 4, 3}), array(w, {2, 2, 3, 4})}, [](Builder& b, auto in) {
        return ops::conv(b, in[0], in[1], {2, 2}, {1, 1});
      });
  const auto product =
      evaluate({array(x, {2, 6, 4, 3}), array(w, {2, 2, 3, 4})}, [](Builder& b, auto in) {
        const ValueId patches = ops::reshape(b, in[0], {2, 3, 2, 2, 2, 3});
        return ops::dot_general(b, patches, in[1],
                                {.lhs_contract = {5, 2, 4}, .rhs_contract = {2, 0, 1}});
      });
  EXPECT_EQ(elements<float>(conv), elements<float>(product));
}

TEST(Cumulative, KeepsTheFirstElement) {
  auto sums = [](bool reverse) {
    return elements<float>(evaluate({array<float>({-0.0f, -0.0f, 1, 2})}, [&](Builder& b, auto in) {
      return b.emit("cumsum", {{"dim", 0}, {"reverse", reverse}}, {in[0]});
    }));
  };
  expect_elements<float>(sums(false), {-0.0f, -0.0f, 1, 3});
  expect_elements<float>(sums(true), {3, 3, 3, 2});
  const auto most =
      evaluate({array<float>({-0.0f, 0.0f, -1, 2, kNan, 3})}, [](Builder& b, auto in) {
        return b.emit("cummax", {{"dim", 0}, {"reverse", false}}, {in[0]});
      });
  expect_elements<float>(elements<float>(most), {-0.0f, 0.0f, 0.0f, 2, kNan, kNan});
}

TEST(Cumulative, ProductsOfZerosHaveGradients) {
  const auto of_line =
      gradient({array<float>({2, 0, 3, 0}), array<float>({1, 1, 1, 1})}, [](Builder& b, auto in) {
        return b.emit("cumprod", {{"dim", 0}, {"reverse", false}}, {in[0]});
      });
  EXPECT_EQ(of_line, (Floats{1, 8, 0, 0}));
  const auto of_product = gradient({array<float>({2, 0, 3, 5, 7, 0}, {2, 3}), array<float>({1, 1})},
                                   [](Builder& b, auto in) {
                                     return b.emit("reduce_prod", {{"dims", ir::Ints{1}}}, {in[0]});
                                   });
  EXPECT_EQ(of_product, (Floats{0, 6, 0, 0, 0, 35}));
}

TEST(Cumulative, TheFirstOfEqualElementsTakesTheCotangent) {
  auto emit = [](Builder& b, auto in) {
    return b.emit("cummax", {{"dim", 0}, {"reverse", false}}, {in[0]});
  };
  EXPECT_EQ(gradient({array<float>({1, 3, 3, 2, 4}), array<float>({1, 2, 4, 8, 16})}, emit),
            (Floats{1, 14, 0, 0, 16}));
}

TEST(Window, TheFirstOfEqualElementsTakesTheCotangent) {
  auto emit = [](Builder& b, auto in) {
    return b.emit("reduce_window_max", {{"stride", ir::Ints{1}}, {"window", ir::Ints{2}}}, {in[0]});
  };
  EXPECT_EQ(gradient({array<float>({1, 3, 3, 2}), array<float>({1, 2, 4})}, emit),
            (Floats{0, 3, 4, 0}));
}

TEST(TopK, OrdersEqualElementsByIndexAndNanFirst) {
  const auto best = testing::evaluate_all(
      {array<float>({-0.0f, kInf, 0.0f, kNan, -1, kNan, kInf})}, [](Builder& b, auto in) {
        return b.emit_all("top_k", {{"dim", 0}, {"k", 6}}, {in[0]});
      });
  expect_elements<float>(elements<float>(best[0]), {kNan, kNan, kInf, kInf, -0.0f, 0.0f});
  EXPECT_EQ(elements<std::int32_t>(best[1]), (Ints{3, 5, 1, 6, 0, 2}));
}

TEST(Scatter, TheLastUpdateStays) {
  const auto rows = array<std::int32_t>({2, 0, 2, -1, 3});
  const auto updates = array<float>({1, 2, 4, 8, 16});
  const auto result = evaluate({array<float>({7, 8, 9}), rows, updates}, [](Builder& b, auto in) {
    return ops::scatter(b, in[0], in[1], in[2], 0);
  });
  EXPECT_EQ(elements<float>(result), (Floats{2, 8, 4}));
  const auto of_operand =
      gradient({array<float>({7, 8, 9}), rows, updates, array<float>({1, 2, 3})},
               [](Builder& b, auto in) { return ops::scatter(b, in[0], in[1], in[2], 0); });
  EXPECT_EQ(of_operand, (Floats{0, 2, 0}));
  const auto of_updates =
      gradient({updates, rows, array<float>({7, 8, 9}), array<float>({1, 2, 3})},
               [](Builder& b, auto in) { return ops::scatter(b, in[2], in[1], in[0], 0); });
  EXPECT_EQ(of_updates, (Floats{0, 1, 3, 0, 0}));
}

TEST(DynamicSlice, StaysInside) {
  auto part = [](std::int32_t start) {
    return elements<float>(
        evaluate({array<float>({1, 2, 3, 4}), array<std::int32_t>({start}, {})},
                 [](Builder& b, auto in) { return ops::dynamic_slice(b, in[0], {in[1]}, {2}); }));
  };
  EXPECT_EQ(part(-5), (Floats{1, 2}));
  EXPECT_EQ(part(1), (Floats{2, 3}));
  EXPECT_EQ(part(std::numeric_limits<std::int32_t>::max()), (Floats{3, 4}));
}

TEST(Along, IndicesOutsideReadNanAndDropUpdates) {
  const auto indices = array<std::int32_t>({1, -1, 0, 2}, {2, 2});
  const auto read =
      evaluate({array<float>({1, 2, 3, 4}, {2, 2}), indices},
               [](Builder& b, auto in) { return ops::gather_along(b, in[0], in[1], 1); });
  expect_elements<float>(elements<float>(read), {2, kNan, 3, kNan});
  const auto sums =
      evaluate({indices, array<float>({1, 2, 4, 8}, {2, 2})},
               [](Builder& b, auto in) { return ops::scatter_add_along(b, in[0], in[1], 1, 2); });
  EXPECT_EQ(elements<float>(sums), (Floats{0, 1, 4, 0}));
}

TEST(Rounding, GoesToTheEvenNeighbour) {
  auto apply = [](const char* op) {
    return elements<float>(evaluate({array<float>({0.5f, 1.5f, -0.5f, -2.5f, 2.6f, kNan, -kInf})},
                                    [&](Builder& b, auto in) { return b.emit(op, {}, {in[0]}); }));
  };
  expect_elements<float>(apply("round"), {0, 2, -0.0f, -2, 3, kNan, -kInf});
  expect_elements<float>(apply("ceil"), {1, 2, -0.0f, -2, 3, kNan, -kInf});
}

TEST(Bits, AreCounted) {
  auto apply = [](const char* op) {
    return elements<std::int32_t>(
        evaluate({array<std::int32_t>({0, 1, -1, 6})},
                 [&](Builder& b, auto in) { return b.emit(op, {}, {in[0]}); }));
  };
  EXPECT_EQ(apply("population_count"), (Ints{0, 1, 32, 2}));
  EXPECT_EQ(apply("count_leading_zeros"), (Ints{32, 31, 0, 29}));
}

}  // namespace
}  // namespace tessera
