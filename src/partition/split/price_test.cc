#include "partition/split/price.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "partition/partition.h"

namespace tessera::partition {
namespace {

TEST(Price, CountsBodiesAsOftenAsTheyRun) {
  const ir::Function program = ir::parse(R"(
function main[mesh="data=2", grains=8](%0: f32[3,4,4]<{},{data},{}>, %1: f32[6,4]<{data},{}>) {
  %2: f32[6,4]<{data},{}> = scan[body={(%0: f32[6,4]<{data},{}>, %1: f32[4,4]<{data},{}>) {
    %2: f32[4,4]<{},{}> = all_gather %1
    %3: f32[6,4]<{data},{}> = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[],
        rhs_contract=[0]] %0, %2
    return %3
  }}, length=3, num_carry=1, num_consts=0, reverse=false] %1, %0
  return %2
})");
  verify_partitioned(program, "the test");
  const ProgramPrice price = price_of_program(program);
  // Each round moves half of a matrix and has a latency.
  EXPECT_EQ(price.moved, 3 * (512 + 32));
  // 6 * 4 * 4 products and sums and 24 stored numbers, on two devices.
  EXPECT_EQ(price.work, 3 * (2 * 96 + 24) / 2.0 / kFlopsPerByte);
}

TEST(Price, WorkIsWeighedRoughly) {
  EXPECT_TRUE(is_better({.moved = 10, .work = 0}, {.moved = 11, .work = 0}));
  EXPECT_FALSE(is_better({.moved = 11, .work = 0}, {.moved = 10, .work = 0}));
  EXPECT_FALSE(is_better({.moved = 10, .work = 0}, {.moved = 10, .work = 0}));
  EXPECT_TRUE(is_better({.moved = 5, .work = 1005}, {.moved = 9, .work = 1000}));
  EXPECT_FALSE(is_better({.moved = 5, .work = 1030}, {.moved = 9, .work = 1000}));
  EXPECT_TRUE(is_better({.moved = 9, .work = 1000}, {.moved = 5, .work = 1030}));
}

}  // namespace
}  // namespace tessera::partition
