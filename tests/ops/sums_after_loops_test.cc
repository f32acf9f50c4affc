// Products that a loop adds to a carry. They become one product after the loop.
#include <gtest/gtest.h>
#include <random>

#include "ops/control/control.h"
#include "tests/ops/loops.h"

namespace tessera {
namespace {

using ir::Function;
using testing::count, testing::loop_of;

// A scan with a matrix %0 and a row %1 as carries and with rows %2. `lines` make a sum from a
// product %5 and two views of it, %6 and %8.
Function loop_of_sums(const std::string& lines) {
  return ir::parse(
      R"(function main[mesh="none", grains=8](%0: f32[5,2,24], %1: f32[24,24], %2: f32[24]) {
  %3: f32[24,24], %4: f32[24], %5: f32[5,24] = scan[body={)"
      R"((%0: f32[24,24], %1: f32[24], %2: f32[2,24]) {
    %3: f32[2,24] = neg %2
    %4: f32[24] = reduce_sum[dims=[0]] %3
    %5: f32[24,24] = dot_general[lhs_batch=[], lhs_contract=[0], )"
      R"(rhs_batch=[], rhs_contract=[0]] %2, %3
    %6: f32[24,24] = transpose[permutation=[1,0]] %5
    %7: f32[4,6,24] = reshape[shape=[4,6,24]] %6
    %8: f32[24,24] = reshape[shape=[24,24]] %7
    %9: f32[] = constant[dtype=f32, shape=[], value=0.0]
    %10: f32[24,24] = broadcast_in_dim[dims=[], shape=[24,24]] %9
    %11: f32[24,24] = broadcast_in_dim[dims=[0], shape=[24,24]] %4
    %12: f32[24,24] = broadcast_in_dim[dims=[1], shape=[24,24]] %1
)" + lines +
      R"(  }}, length=5, num_carry=2, num_consts=0, reverse=true] %1, %2, %0
  return %3, %4, %5
}
)");
}

/// Compares results. The elements are small whole numbers, so the order of sums changes no bit.
void expect_same_results(const Function& f, const Function& late) {
  std::mt19937 random(5);
  std::vector<ops::HostArray> inputs;
  for (const ir::ValueId id : f.inputs) {
    for (float& x : inputs.emplace_back(f.type(id)).data<float>()) {
      x = static_cast<float>(random() % 9) - 4;
    }
  }
  const auto expected = compile::interpret(f, inputs), found = compile::interpret(late, inputs);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(testing::elements<float>(found[i]), testing::elements<float>(expected[i]));
  }
}

struct Case {
  std::string lines;
  std::int64_t carries;  // carries that are left
  std::size_t late;      // products after the loop
};

TEST(SumsAfterLoops, AreOneProduct) {
  for (const Case& c :
       std::vector<Case>{{"%13: f32[24,24] = add %0, %8\n    return %13, %4, %1", 1, 1},
                         // A sum of two terms; a term of zeros is left out.
                         {"%13: f32[24,24] = add %5, %10\n    %14: f32[24,24] = add %6, %0\n"
                          "    %15: f32[24,24] = add %13, %14\n    return %15, %4, %1",
                          1, 2},
                         // An outer product of two rows, which is not written as a product.
                         {"%13: f32[24,24] = mul %12, %11\n    %14: f32[24,24] = add %13, %0\n"
                          "    return %14, %4, %1",
                          1, 1},
                         // Another term stays in the loop.
                         {"%13: f32[24,24] = add %8, %11\n    %14: f32[24,24] = add %13, %0\n"
                          "    return %14, %4, %1",
                          2, 1}}) {
    const Function f = loop_of_sums("    " + c.lines + "\n");
    const Function late = ops::sum_products_after_loops(f);
    ir::verify(late, "sum_products_after_loops");
    EXPECT_EQ(loop_of(late).attributes.integer("num_carry"), c.carries) << ir::print(late);
    EXPECT_EQ(count(late, "dot_general"), c.late) << ir::print(late);
    EXPECT_EQ(count(testing::body_of(late), "dot_general"), 0U) << ir::print(late);
    expect_same_results(f, late);
    EXPECT_EQ(ir::print(ops::sum_products_after_loops(late)), ir::print(late));
  }
}

TEST(SumsAfterLoops, StayWhereTheLoopReadsThem) {
  for (const std::string lines :
       {"%13: f32[24,24] = add %0, %5\n    %14: f32[24] = reduce_sum[dims=[0]] %6\n"
        "    return %13, %14, %1",  // the product
        "%13: f32[24,24] = add %0, %5\n    %14: f32[24] = reduce_sum[dims=[0]] %0\n"
        "    return %13, %14, %1",  // the carry
        "%13: f32[24,24] = add %0, %5\n    %14: f32[24] = reduce_sum[dims=[0]] %13\n"
        "    return %13, %14, %1",                                  // the sum
        "%13: f32[24,24] = add %5, %6\n    return %13, %4, %1"}) {  // no carry
    const Function f = loop_of_sums("    " + lines + "\n");
    EXPECT_EQ(ir::print(ops::sum_products_after_loops(f)), ir::print(ir::without_dead_code(f)));
  }
}

}  // namespace
}  // namespace tessera
