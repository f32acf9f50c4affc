// Products that a loop computes round by round. They become one product before or after the loop.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

#include "ops/control/control.h"
#include "tests/ops/loops.h"

namespace tessera {
namespace {

using ir::Function;

using testing::body_of, testing::count, testing::expect_same_bits;

Function moved_out(const Function& f) {
  return testing::changed_by(ops::move_products_out_of_loops, "move_products_out_of_loops", f);
}

/// A scan of slices %3 with two constants, %0 and %1, and a carry %2.
Function loop_of_products(const std::string& lines) {
  return ir::parse(
      R"(function main[mesh="none", grains=8](%0: f32[24,16], %1: f32[16,24], %2: f32[2,24], )"
      R"(%3: f32[5,2,24]) {
  %4: f32[2,24], %5: f32[5,2,24], %6: f32[5,2,24] = scan[body={(%0: f32[24,16], )"
      R"(%1: f32[16,24], %2: f32[2,24], %3: f32[2,24]) {
)" + lines +
      R"(  }}, length=5, num_carry=1, num_consts=2, reverse=true] %0, %1, %2, %3
  return %4, %5, %6
}
)");
}

/// The lines for the product of %x with %0, and for the product of that with %1.
std::string two_products(int x, int first) {
  return fmt::format(R"(    %{1}: f32[2,16] = dot_general[lhs_batch=[], lhs_contract=[1], )"
                     R"(rhs_batch=[], rhs_contract=[0]] %{0}, %0
    %{2}: f32[2,24] = dot_general[lhs_batch=[], lhs_contract=[1], )"
                     R"(rhs_batch=[], rhs_contract=[0]] %{1}, %1
)",
                     x, first, first + 1);
}

TEST(ProductsOfRounds, OfSlicesAreMadeBeforeTheLoop) {
  const Function f = loop_of_products(
      two_products(3, 4) + "    %6: f32[2,24] = tanh %2\n    %7: f32[2,24] = add %6, %5\n" +
      "    return %7, %2, %6\n");
  const Function moved = moved_out(f);
  EXPECT_EQ(count(moved, "dot_general"), 2U) << ir::print(moved);
  EXPECT_EQ(count(body_of(moved), "dot_general"), 0U) << ir::print(moved);
  EXPECT_EQ(body_of(moved).inputs.size(), 2U) << ir::print(moved);
  expect_same_bits(f, moved);
}

TEST(ProductsOfRounds, ThatAreStackedAreMadeAfterTheLoop) {
  const Function f = loop_of_products(
      "    %4: f32[2,24] = tanh %2\n    %5: f32[2,24] = add %4, %3\n" + two_products(5, 6) +
      two_products(4, 8) +
      "    %10: f32[2,24] = add %9, %7\n    %11: f32[24,2] = transpose[permutation=[1,0]] %10\n"
      "    %12: f32[2,24] = reshape[shape=[2,24]] %11\n    return %5, %12, %3\n");
  const Function moved = moved_out(f);
  EXPECT_EQ(count(moved, "dot_general"), 4U) << ir::print(moved);
  EXPECT_EQ(count(body_of(moved), "dot_general"), 0U) << ir::print(moved);
  expect_same_bits(f, moved);
}

TEST(ProductsOfRounds, StayWhereTheLoopNeedsThem) {
  const std::string of_carry = two_products(2, 4);
  for (const std::string& lines :
       {of_carry + "    return %5, %2, %3\n",                                     // as a carry
        of_carry + "    return %5, %5, %3\n",                                     // twice
        of_carry + "    %6: f32[2,24] = tanh %5\n    return %2, %6, %3\n",        // for more work
        of_carry + "    %6: f32[2,24] = add %5, %3\n    return %2, %6, %3\n"}) {  // in another sum
    const Function f = loop_of_products(lines);
    EXPECT_EQ(ir::print(moved_out(f)), ir::print(ir::without_dead_code(f)));
  }
}

/// A loop with a product of a scanned value and a product that is stacked. Each may have a batch
/// dimension, and the factor that varies may be on either side.
Function random_loop_of_products(std::mt19937& random) {
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  const bool has_batch = below(2) == 0;
  const int batch = 1 + below(3), rows = 1 + below(3), k = 1 + below(20), columns = 1 + below(9);
  const bool is_left = below(2) == 0, contracts_first = below(2) == 0;
  const std::string front = has_batch ? fmt::format("{},", batch) : "";
  const std::string varies = contracts_first ? fmt::format("f32[{}{},{}]", front, k, rows)
                                             : fmt::format("f32[{}{},{}]", front, rows, k);
  const std::string same = fmt::format("f32[{}{},{}]", front, k, columns);
  const int free[] = {is_left ? rows : columns, is_left ? columns : rows};
  const std::string result = fmt::format("f32[{}{},{}]", front, free[0], free[1]);
  const int dim = has_batch ? 1 : 0;
  const int of_varying = contracts_first ? dim : dim + 1;
  const std::string dims = has_batch ? "0" : "";
  const auto product = [&](int to, int from) {
    return fmt::format(
        "    %{}: {} = dot_general[lhs_batch=[{}], lhs_contract=[{}], rhs_batch=[{}], "
        "rhs_contract=[{}]] %{}, %{}\n",
        to, result, dims, is_left ? of_varying : dim, dims, is_left ? dim : of_varying,
        is_left ? from : 0, is_left ? 0 : from);
  };
  const auto stack = [](const std::string& type) { return "f32[4," + type.substr(4); };
  return ir::parse(fmt::format(
      "function main[mesh=\"none\", grains=8](%0: {0}, %1: {1}, %2: {2}, %3: {3}) {{\n"
      "  %4: {1}, %5: {2}, %6: {4} = scan[body={{(%0: {0}, %1: {1}, %2: {2}, %3: {5}) {{\n"
      "{6}{7}    %6: {2} = add %2, %4\n    %7: {1} = tanh %1\n    %8: {1} = add %7, %3\n"
      "    return %8, %6, %5\n"
      "  }}}}, length=4, num_carry=2, num_consts=1, reverse={8}] %0, %1, %2, %3\n"
      "  return %4, %5, %6\n}}\n",
      same, varies, result, stack(varies), stack(result), varies, product(4, 3), product(5, 1),
      below(2) == 0));
}

TEST(ProductsOfRounds, RandomOnesHaveTheSameBits) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Function f = random_loop_of_products(random);
    const Function moved = moved_out(f);
    EXPECT_EQ(count(body_of(moved), "dot_general"), 0U) << ir::print(moved);
    expect_same_bits(f, moved);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tessera
