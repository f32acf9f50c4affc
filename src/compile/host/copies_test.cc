// Copies that are avoided: of padding before windows, and of products that are outputs.
#include <gtest/gtest.h>
#include <limits>

#include "compile/host/fuse/fuse.h"
#include "compile/host/lower.h"
#include "partition/test_programs.h"

namespace tessera::compile::host {
namespace {

using partition::testing::on_one_device;
using partition::testing::Program;

constexpr double kInf = std::numeric_limits<double>::infinity();

/// A reduction over 3x3 windows of an array that is padded with a number, and the padded array.
struct Pool {
  explicit Pool(double fill, const char* op = "reduce_window_max") {
    const ValueId value = ops::scalar(p.b, fill, DType::f32);
    padded = ops::pad(p.b, p.input({2, 6, 6, 4}), value, {0, 1, 1, 0}, {0, 1, 1, 0});
    result = p.b.emit(op, windows(), {padded});
  }
  static ir::Attributes windows() {
    return {{"stride", ir::Ints{1, 2, 2, 1}}, {"window", ir::Ints{1, 3, 3, 1}}};
  }

  Program p{Mesh()};
  ValueId padded, result;
};

bool is_left_out(const Pool& pool, const std::vector<ValueId>& outputs) {
  return fuse(on_one_device(pool.p, outputs)).is_view[pool.padded];
}

TEST(Padding, IsLeftOutWhereItIsNeutral) {
  for (const auto& [op, fill] :
       {std::pair("reduce_window_max", -kInf), std::pair("reduce_window_min", kInf),
        std::pair("reduce_window_sum", 0.0)}) {
    const Pool pool(fill, op);
    EXPECT_TRUE(is_left_out(pool, {pool.result})) << op;
    const Function f = on_one_device(pool.p, {pool.result});
    EXPECT_EQ(lower(f).instructions.size(), 1U) << op;
  }
  for (const auto& [op, fill] :
       {std::pair("reduce_window_max", 0.0), std::pair("reduce_window_min", -kInf),
        std::pair("reduce_window_sum", -0.0), std::pair("reduce_window_sum", 1.0)}) {
    const Pool pool(fill, op);
    EXPECT_FALSE(is_left_out(pool, {pool.result})) << op;
  }
}

TEST(Padding, StaysForOtherReaders) {
  Pool pool(-kInf);
  EXPECT_FALSE(is_left_out(pool, {pool.result, pool.padded}));
  const ValueId numbers =
      pool.p.b.emit("find_in_windows", Pool::windows(), {pool.padded, pool.result});
  EXPECT_TRUE(is_left_out(pool, {pool.result, numbers}));
  const ValueId other = ops::exp(pool.p.b, pool.padded);
  EXPECT_FALSE(is_left_out(pool, {pool.result, other}));
}

TEST(Outputs, ThatAreViewsOfAProductAreWrittenByIt) {
  Program p{Mesh()};
  const ValueId product = ops::dot_general(
      p.b, p.input({2, 4, 8}), p.input({2, 8, 6}),
      {.lhs_contract = {2}, .rhs_contract = {1}, .lhs_batch = {0}, .rhs_batch = {0}});
  const ValueId moved = p.transpose(product, {1, 0, 2});
  const ValueId merged = ops::reshape(p.b, moved, {4, 12});
  const Function f = on_one_device(p, {merged});
  const HostProgram program = lower(f);
  ASSERT_EQ(program.instructions.size(), 1U);
  ASSERT_EQ(program.instructions[0].tasks.size(), 1U);
  EXPECT_EQ(program.instructions[0].tasks[0].writes, (std::vector<TileRef>{{merged, 0}}));
}

TEST(Outputs, AreCopiesIfTheProductIsReadElsewhere) {
  Program p{Mesh()};
  const ValueId product = ops::dot_general(p.b, p.input({4, 8}), p.input({8, 6}),
                                           {.lhs_contract = {1}, .rhs_contract = {0}});
  const ValueId merged = ops::reshape(p.b, product, {24});
  const Function f = on_one_device(p, {merged, ops::exp(p.b, product)});
  EXPECT_GT(lower(f).instructions.size(), 1U);
  const Function both = on_one_device(p, {merged, product});
  EXPECT_GT(lower(both).instructions.size(), 1U);
}

}  // namespace
}  // namespace tessera::compile::host
