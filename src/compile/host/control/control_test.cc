// Compares control flow on the host engine with the reference, bit for bit, on meshes, with 1 to 3
// threads.
#include <gtest/gtest.h>

#include <tessera/error.h>

#include "compile/compile.h"
#include "compile/sink.h"
#include "tests/fuzz/control_programs.h"

namespace tessera::compile {
namespace {

using namespace testing;

// --- scan ----------------------------------------------------------------------------------------

/// A recurrence with the batch of 5 rows over `data` and the contraction over `model`; each step
/// returns a row of results and a sum over the batch.
const char* const kRecurrence = R"((%0: f32[6,3]<{model},{}>, %1: f32[5,3]<{data},{}>,
    %2: f32[LENGTH,5,6]<{},{data},{model}>, %3: f32[LENGTH,3]<{},{}>) {
  %4: f32[5,3]<{data},{}>, %5: f32[LENGTH,5,3]<{},{data},{}>, %6: f32[LENGTH]<{}> = scan[
      body={(%0: f32[6,3]<{model},{}>, %1: f32[5,3]<{data},{}>, %2: f32[5,6]<{data},{model}>,
             %3: f32[3]<{}>) {
    %4: f32[5,3]<{data},{}+{model}> = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[],
        rhs_contract=[0]] %2, %0
    %5: f32[5,3]<{data},{}> = all_reduce[reduction="sum"] %4
    %6: f32[5,3]<{data},{}> = broadcast_in_dim[dims=[1], shape=[5,3]] %3
    %7: f32[5,3]<{data},{}> = mul %1, %6
    %8: f32[5,3]<{data},{}> = add %5, %7
    %9: f32[]<+{data}> = reduce_sum[dims=[0,1]] %8
    %10: f32[]<> = all_reduce[reduction="sum"] %9
    %11: f32[5,3]<{data},{}> = mul %8, %1
    return %8, %11, %10
  }}, length=LENGTH, num_carry=1, num_consts=1, reverse=REVERSE] %0, %1, %2, %3
  return %4, %5, %6
})";

Function recurrence(std::int64_t length, bool is_reverse) {
  const std::string text = replaced(kRecurrence, "LENGTH", std::to_string(length));
  return parsed("data=2,model=2", replaced(text, "REVERSE", is_reverse ? "true" : "false"));
}

TEST(Scan, RecurrenceOnMeshes) {
  for (std::int64_t length : {0, 1, 2, 5}) {
    for (bool is_reverse : {false, true}) {
      const Function f = recurrence(length, is_reverse);
      check(f, inputs_of(f), {1});
    }
  }
}

TEST(Scan, SlicesThatAreReturnedMayBeThoseOfADonatedArray) {
  for (const char* line :
       {"return %0, %1", "%2: f32[4]<{}> = optimization_barrier %0\n    return %2, %1",
        "%2: f32[4]<{}> = reshape[shape=[4]] %0\n    return %2, %1",
        "%2: f32[2,2]<{},{}> = reshape[shape=[2,2]] %1\n"
        "    %3: f32[2,2]<{},{}> = optimization_barrier %2\n"
        "    %4: f32[4]<{}> = reshape[shape=[4]] %3\n    return %0, %4",
        "return %1, %0", "%2: f32[4]<{}> = add %0, %1\n    return %2, %0"}) {
    const Function f = parsed("none", replaced(R"((%0: f32[3,4]<{},{}>, %1: f32[3,4]<{},{}>) {
  %2: f32[3,4]<{},{}>, %3: f32[3,4]<{},{}> = scan[body={(%0: f32[4]<{}>, %1: f32[4]<{}>) {
    LINE
  }}, length=3, num_carry=0, num_consts=0, reverse=false] %0, %1
  return %2, %3, %0
})",
                                               "LINE", line));
    check(f, inputs_of(f), {0, 1, -1});
    check(f, inputs_of(f), {1, 0, -1});
    Function once = f;
    once.outputs.pop_back();
    check(once, inputs_of(f), {0, 1});
    check(once, inputs_of(f), {1, 0});
  }
}

TEST(Scan, CollectivesAreCountedInEachStep) {
  const Function f = recurrence(5, false);
  run::Engine::instance().reset_collective_counts();
  run_partitioned(f, {}, inputs_of(f));
  const run::CollectiveCounts counts = run::Engine::instance().collective_counts();
  ASSERT_EQ(counts.size(), 1U);
  EXPECT_EQ(counts.at("all_reduce").count, 10);
  EXPECT_EQ(counts.at("all_reduce").bytes, 5 * (3 * 3 * 4 + 4));
}

/// Carries that swap places, so that no step can update in place.
TEST(Scan, CarriesThatChangePlaces) {
  for (int length : {0, 1, 2, 3, 4}) {
    const Function f =
        parsed("data=2", replaced(R"((%0: f32[5]<{data}>, %1: f32[5]<{data}>, %2: f32[5]<{data}>) {
  %3: f32[5]<{data}>, %4: f32[5]<{data}>, %5: f32[5]<{data}> = scan[body={
      (%0: f32[5]<{data}>, %1: f32[5]<{data}>, %2: f32[5]<{data}>) {
    %3: f32[5]<{data}> = add %0, %1
    return %1, %2, %3
  }}, length=LENGTH, num_carry=3, num_consts=0, reverse=false] %0, %1, %2
  return %3, %4, %5
})",
                                  "LENGTH", std::to_string(length)));
    check(f, inputs_of(f), {0, 1, 2});
  }
}

TEST(Scan, OneArrayIsConstantAndCarryTwice) {
  const Function f = parsed("data=2", R"((%0: f32[6]<{data}>) {
  %1: f32[6]<{data}>, %2: f32[6]<{data}> = scan[body={
      (%0: f32[6]<{data}>, %1: f32[6]<{data}>, %2: f32[6]<{data}>) {
    %3: f32[6]<{data}> = add %0, %1
    %4: f32[6]<{data}> = mul %0, %2
    return %3, %4
  }}, length=3, num_carry=2, num_consts=1, reverse=false] %0, %0, %0
  return %1, %2
})");
  check(f, inputs_of(f), {0, -1});
}

TEST(Scan, AnUpdateInPlaceTakesNoMemory) {
  const Function f = parsed("none", R"((%0: f32[1000]<{}>) {
  %1: f32[1000]<{}> = scan[body={(%0: f32[1000]<{}>) {
    %1: f32[1000]<{}> = mul %0, %0
    return %1
  }}, length=3, num_carry=1, num_consts=0, reverse=false] %0
  return %1
})");
  const auto executable = compile(f, {.is_donated = {true}, .output_alias = {0}});
  EXPECT_EQ(executable->outputs[0].alias, 0);
  EXPECT_LE(executable->arena_bytes, 64);
  EXPECT_EQ(executable->device_peak_bytes, 4000);
  check(f, inputs_of(f), {0});
}

/// The cost of a step counts the elements of a large array that the step reads and writes, not the
/// whole array. A value with more elements than a register holds keeps the loop from becoming a
/// kernel.
TEST(Scan, ABodyThatTouchesFewElementsIsShort) {
  const char* const text = R"((%0: f32[1000000]<{}>, %1: i32[]<>) {
  %2: f32[1000000]<{}>, %3: i32[]<> = scan[body={(%0: f32[1000000]<{}>, %1: i32[]<>) {
    %2: f32[1]<{}> = dynamic_slice[sizes=[1]] %0, %1
    %3: i32[1]<{}> = broadcast_in_dim[dims=[], shape=[1]] %1
    %4: f32[1]<{}> = gather[dim=0, num_batch=0] %0, %3
    %5: f32[1]<{}> = slice[limit=[1], start=[0], stride=[1]] %0
    %6: f32[1]<{}> = add %2, %4
    %7: f32[1]<{}> = add %6, %5
    %11: f32[2100]<{}> = slice[limit=[2100], start=[0], stride=[1]] %0
    %12: f32[2100]<{}> = exp %11
    %13: f32[1]<{}> = slice[limit=[1], start=[0], stride=[1]] %12
    %8: f32[1000000]<{}> = scatter[dim=0] %0, %3, %13
    %9: f32[1000000]<{}> = dynamic_update_slice %8, %7, %1
    LINE
    return %10, %1
  }}, length=3, num_carry=2, num_consts=0, reverse=false] %0, %1
  return %2, %3
})";
  const auto is_short = [&](const std::string& line) {
    const Function f = parsed("none", replaced(text, "LINE", line));
    const auto executable = compile(f, {.is_donated = {true, false}, .output_alias = {0, -1}});
    for (const run::Task& task : executable->tasks) {
      if (task.control != nullptr) return task.control->bodies[0].executable->is_short_body;
    }
    return false;
  };
  EXPECT_TRUE(is_short("%10: f32[1000000]<{}> = scatter[dim=0] %9, %3, %6"));
  EXPECT_FALSE(is_short("%10: f32[1000000]<{}> = mul %9, %9"));
}

/// Each update overwrites the result of the carry's previous update.
TEST(Scan, SeveralUpdatesInPlaceTakeNoMemory) {
  const Function f = parsed("none", R"((%0: f32[1000]<{}>, %1: f32[4]<{}>, %2: i32[2]<{}>) {
  %3: f32[1000]<{}> = scan[body={(%0: f32[4]<{}>, %1: i32[2]<{}>, %2: f32[1000]<{}>) {
    %3: f32[2]<{}> = slice[limit=[2], start=[0], stride=[1]] %0
    %4: f32[1000]<{}> = scatter[dim=0] %2, %1, %3
    %5: i32[1]<{}> = slice[limit=[1], start=[0], stride=[1]] %1
    %6: i32[]<> = reshape[shape=[]] %5
    %7: f32[1000]<{}> = dynamic_update_slice %4, %0, %6
    %8: f32[2]<{}> = gather[dim=0, num_batch=0] %7, %1
    %9: f32[2]<{}> = add %8, %3
    %10: f32[1000]<{}> = scatter[dim=0] %7, %1, %9
    return %10
  }}, length=3, num_carry=1, num_consts=2, reverse=false] %1, %2, %0
  return %3
})");
  const auto executable = compile(f, {.is_donated = {true, false, false}, .output_alias = {0}});
  EXPECT_EQ(executable->outputs[0].alias, 0);
  EXPECT_LE(executable->arena_bytes, 512);
  check(f, inputs_of(f), {0});
  check(f, inputs_of(f), {-1});
}

/// Equations that read the old carry run before the update, whatever their order in the program.
TEST(Scan, AReadOfWhatIsUpdatedComesFirst) {
  const Function f = parsed("none", R"((%0: f32[1000]<{}>, %1: i32[1]<{}>, %2: f32[1000]<{}>) {
  %3: f32[1000]<{}>, %4: f32[1000]<{}>, %5: f32[3,1]<{},{}> = scan[
      body={(%0: i32[1]<{}>, %1: f32[1000]<{}>, %2: f32[1000]<{}>) {
    %3: f32[1]<{}> = gather[dim=0, num_batch=0] %2, %0
    %4: f32[1000]<{}> = scatter[dim=0] %1, %0, %3
    %5: f32[1]<{}> = gather[dim=0, num_batch=0] %1, %0
    %6: f32[1]<{}> = add %5, %5
    %7: f32[1000]<{}> = scatter[dim=0] %2, %0, %6
    return %4, %7, %6
  }}, length=3, num_carry=2, num_consts=1, reverse=false] %1, %0, %2
  return %3, %4, %5
})");
  const auto executable =
      compile(f, {.is_donated = {true, false, true}, .output_alias = {0, 2, -1}});
  EXPECT_LE(executable->arena_bytes, 512);
  check(f, inputs_of(f), {0, 2, -1});
  check(f, inputs_of(f), {-1, -1, -1});
}

/// A result that does not get an argument's memory is updated in its own memory.
TEST(Updates, LieInTheMemoryOfTheResult) {
  const Function f = parsed("data=2", R"((%0: f32[1000]<{data}>, %1: f32[2]<{}>, %2: i32[2]<{}>) {
  %3: f32[1000]<{data}> = scatter[dim=0] %0, %2, %1
  %4: f32[2]<{}> = add %1, %1
  %5: f32[1000]<{data}> = scatter[dim=0] %3, %2, %4
  %6: f32[1000]<{data}> = neg %5
  %7: f32[1000]<{data}> = add %6, %0
  return %7
})");
  const auto executable = compile(f, {.is_donated = {false, false, false}, .output_alias = {-1}});
  EXPECT_LE(executable->arena_bytes, 512);
  check(f, inputs_of(f));
  check(f, inputs_of(f), {0});
}

TEST(Scan, ThePeakIncludesWhatTheBodyNeeds) {
  const Function f = parsed("data=2", R"((%0: f32[100,10]<{data},{}>) {
  %1: f32[10,10]<{},{}> = constant[dtype=f32, shape=[10,10], value=0.0]
  %2: f32[10,10]<{},{}> = scan[body={(%0: f32[100,10]<{data},{}>, %1: f32[10,10]<{},{}>) {
    %2: f32[100,10]<{data},{}> = dot_general[lhs_batch=[], lhs_contract=[1],
        rhs_batch=[], rhs_contract=[0]] %0, %1
    %3: f32[10,10]<{},{}+{data}> = dot_general[lhs_batch=[], lhs_contract=[0],
        rhs_batch=[], rhs_contract=[0]] %2, %0
    %4: f32[10,10]<{},{}> = all_reduce[reduction="sum"] %3
    return %4
  }}, length=3, num_carry=1, num_consts=1, reverse=false] %0, %1
  return %2
})");
  const auto executable = compile(f, {.is_donated = {false}, .output_alias = {-1}});
  // A device holds the argument and the result, the initial carry, and the product in the body. The
  // partial sum lies in the memory of the next carry.
  const std::int64_t row = 10 * 4;
  EXPECT_GE(executable->device_peak_bytes, (50 + 10 + 10 + 50) * row);
  EXPECT_LE(executable->device_peak_bytes, (50 + 10 + 10 + 50) * row + 64);
  check(f, inputs_of(f));
}

/// Kernels of every kind on slices with unaligned starts.
const char* const kSlices =
    R"((%0: f32[5,ROWS,COLS]<{},{data},{}>, %1: i32[5,COLS]<{},{}>, %2: f32[5,1]<{},{}>,
    %3: bool[5,ROWS,COLS]<{},{data},{}>, %4: u32[5,2]<{},{}>) {
  %5: f32[5,ROWS,COLS]<{},{data},{}>, %6: f32[5,ROWS,COLS]<{},{data},{}>, )"
    "%7: i32[5,ROWS]<{},{data}>, %8: f32[5,ROWS]<{},{data}>, %9: f32[5,COLS,ROWS]<{},{},{data}>, "
    "%10: f32[5,ROWS,COLS]<{},{},{}>, %11: bool[5,ROWS,COLS]<{},{data},{}>, "
    "%12: u32[5,ROWS,COLS]<{},{data},{}>, %13: f32[5,COLS,COLS]<{},{},{}>, "
    "%14: f32[5,ROWS,COLS]<{},{data},{}>, %15: f32[5,ROWS,TWICE]<{},{data},{}> = "
    R"(scan[body={(%0: f32[ROWS,COLS]<{data},{}>, %1: i32[COLS]<{}>, %2: f32[1]<{}>,
      %3: bool[ROWS,COLS]<{data},{}>, %4: u32[2]<{}>) {
    %5: f32[ROWS,COLS]<{data},{}> = mul %0, %0
    %6: f32[ROWS,COLS]<{data},{}> = gather[dim=1, num_batch=0] %0, %1
    %7: i32[ROWS]<{data}> = argmax[dim=1] %0
    %8: f32[ROWS]<{data}> = reduce_max[dims=[1]] %0
    %9: f32[COLS,ROWS]<{},{data}> = transpose[permutation=[1,0]] %0
    %10: f32[ROWS,COLS]<{},{}> = all_gather %0
    %11: bool[ROWS,COLS]<{data},{}> = not %3
    %12: u32[ROWS,COLS]<{data},{}> = random_bits[shape=[ROWS,COLS]] %4
    %13: f32[COLS,COLS]<{},{}+{data}> = dot_general[lhs_batch=[], lhs_contract=[0], rhs_batch=[],
        rhs_contract=[0]] %0, %0
    %14: f32[COLS,COLS]<{},{}> = all_reduce[reduction="sum"] %13
    %15: f32[ROWS,COLS]<{data},{}> = broadcast_in_dim[dims=[1], shape=[ROWS,COLS]] %2
    %16: f32[ROWS,COLS]<{data},{}> = mul %15, %0
    %17: f32[ROWS,TWICE]<{data},{}> = concatenate[dim=1] %0, %16
    return %5, %6, %7, %8, %9, %10, %11, %12, %14, %16, %17
  }}, length=5, num_carry=0, num_consts=0, reverse=false] %0, %1, %2, %3, %4
  return %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15
})";

TEST(Scan, SlicesOfAllKernels) {
  for (std::int64_t rows : {7, 69}) {
    const std::int64_t cols = rows / 2;
    std::string text = replaced(kSlices, "ROWS", std::to_string(rows));
    text = replaced(text, "COLS", std::to_string(cols));
    const Function f = parsed("data=2", replaced(text, "TWICE", std::to_string(2 * cols)));
    check(f, inputs_of(f));
  }
}

// --- while ---------------------------------------------------------------------------------------

/// Grows until the largest element over the mesh reaches the limit.
const char* const kGrowth = R"((%0: f32[]<>, %1: f32[5,4]<{data},{model}>, %2: i32[]<>) {
  %3: f32[5,4]<{data},{model}>, %4: i32[]<> = while[body={
      (%0: f32[]<>, %1: f32[5,4]<{data},{model}>, %2: i32[]<>) {
    %3: f32[5,4]<{data},{model}> = constant[dtype=f32, shape=[5,4], value=0.75]
    %4: f32[5,4]<{data},{model}> = add %1, %3
    %5: i32[]<> = constant[dtype=i32, shape=[], value=1.0]
    %6: i32[]<> = add %2, %5
    return %4, %6
  }}, condition={(%0: f32[]<>, %1: f32[5,4]<{data},{model}>, %2: i32[]<>) {
    %3: f32[]<+{data model}> = reduce_max[dims=[0,1]] %1
    %4: f32[]<> = all_reduce[reduction="max"] %3
    %5: bool[]<> = compare[direction="lt"] %4, %0
    return %5
  }}, num_consts=1] %0, %1, %2
  return %3, %4
})";

TEST(While, RunsUntilTheConditionIsFalse) {
  const Function f = parsed("data=2,model=2", kGrowth);
  for (float limit : {-5.0F, 2.0F, 2.5F, 3.0F, 9.0F}) {
    HostArray bound(f32({}));
    bound.data<float>()[0] = limit;
    check(f, inputs_of(f, {bound}), {1, 2});
  }
}

TEST(While, CollectivesOfConditionsAreCounted) {
  const Function f = parsed("data=2,model=2", kGrowth);
  HostArray bound(f32({}));
  bound.data<float>()[0] = 9.0F;
  const Arrays inputs = inputs_of(f, {bound, random_array(f32({5, 4}), 3), i32_array(0)});
  run::Engine::instance().reset_collective_counts();
  const Arrays found = run_partitioned(f, {}, inputs);
  const std::int32_t steps = found[1].data<std::int32_t>()[0];
  EXPECT_GT(steps, 5);
  EXPECT_EQ(run::Engine::instance().collective_counts().at("all_reduce").count, steps + 1);
}

/// The condition returns a carry. Carries swap places, so the final values may be in the second
/// buffers.
TEST(While, CarriesThatChangePlaces) {
  const Function f = parsed("data=2", R"((%0: i32[]<>, %1: i32[]<>, %2: f32[3]<{data}>,
      %3: f32[3]<{data}>) {
  %4: i32[]<>, %5: f32[3]<{data}>, %6: f32[3]<{data}> = while[
      body={(%0: i32[]<>, %1: i32[]<>, %2: f32[3]<{data}>, %3: f32[3]<{data}>) {
    %4: i32[]<> = add %1, %0
    %5: f32[3]<{data}> = add %2, %3
    return %4, %3, %5
  }}, condition={(%0: i32[]<>, %1: i32[]<>, %2: f32[3]<{data}>, %3: f32[3]<{data}>) {
    %4: bool[]<> = compare[direction="ne"] %0, %1
    %5: bool[]<> = not %4
    %6: bool[]<> = not %5
    return %6
  }}, num_consts=1] %0, %1, %2, %3
  return %5, %6
})");
  for (std::int32_t steps : {0, 1, 2, 3}) {
    check(f, inputs_of(f, {i32_array(1), i32_array(1 - steps)}), {2, 3});
  }
}

TEST(While, TheConditionMayBeACarry) {
  const Function f = parsed("none", R"((%0: bool[]<>, %1: f32[3]<{}>) {
  %2: bool[]<>, %3: f32[3]<{}> = while[body={(%0: bool[]<>, %1: f32[3]<{}>) {
    %2: bool[]<> = not %0
    %3: f32[3]<{}> = add %1, %1
    return %2, %3
  }}, condition={(%0: bool[]<>, %1: f32[3]<{}>) {
    return %0
  }}, num_consts=0] %0, %1
  return %2, %3
})");
  for (bool runs : {false, true}) {
    HostArray flag(Type{DType::boolean, {}});
    flag.data<bool>()[0] = runs;
    check(f, inputs_of(f, {flag}), {0, 1});
  }
}

// --- cond ----------------------------------------------------------------------------------------

TEST(Cond, NumbersOutsideOfTheRangeMeanTheNearestBranch) {
  const Function f = parsed("data=2,model=2", R"((%0: i32[]<>, %1: f32[5,4]<{data},{}>,
      %2: f32[5,4]<{data},{}>) {
  %3: f32[5,4]<{data},{}>, %4: f32[5,4]<{data},{}> = cond[branches={
  (%0: f32[5,4]<{data},{}>, %1: f32[5,4]<{data},{}>) {
    %2: f32[5,4]<{data},{}> = add %0, %1
    return %2, %2
  }, (%0: f32[5,4]<{data},{}>, %1: f32[5,4]<{data},{}>) {
    return %1, %1
  }, (%0: f32[5,4]<{data},{}>, %1: f32[5,4]<{data},{}>) {
    %2: f32[4]<{}+{data}> = reduce_sum[dims=[0]] %0
    %3: f32[4]<{}> = all_reduce[reduction="sum"] %2
    %4: f32[5,4]<{data},{}> = broadcast_in_dim[dims=[1], shape=[5,4]] %3
    return %4, %0
  }}] %0, %1, %2
  return %3, %4
})");
  for (std::int32_t number : {-1000, -1, 0, 1, 2, 3, 1000}) {
    const Arrays inputs = inputs_of(f, {i32_array(number)});
    check(f, inputs, {1, 2});
    run::Engine::instance().reset_collective_counts();
    run_partitioned(f, {}, inputs);
    EXPECT_EQ(run::Engine::instance().collective_counts().empty(), number < 2);
  }
}

// --- together ------------------------------------------------------------------------------------

/// A scan whose steps run a while loop, whose rounds choose a branch, one of which is a scan.
const char* const kNested = R"((%0: f32[6]<{data}>, %1: i32[4]<{}>, %2: f32[4,6]<{},{data}>) {
  %3: f32[6]<{data}>, %4: f32[4,6]<{},{data}> = scan[
      body={(%0: f32[6]<{data}>, %1: i32[]<>, %2: f32[6]<{data}>) {
    %3: i32[]<>, %4: f32[6]<{data}> = while[
        body={(%0: f32[6]<{data}>, %1: i32[]<>, %2: f32[6]<{data}>) {
      %3: f32[6]<{data}> = cond[branches={(%0: f32[6]<{data}>, %1: f32[6]<{data}>) {
        %2: f32[]<+{data}> = reduce_sum[dims=[0]] %0
        %3: f32[]<> = all_reduce[reduction="sum"] %2
        %4: f32[6]<{data}> = broadcast_in_dim[dims=[], shape=[6]] %3
        %5: f32[6]<{data}> = mul %4, %1
        return %5
      }, (%0: f32[6]<{data}>, %1: f32[6]<{data}>) {
        %2: f32[6]<{data}>, %3: f32[6]<{data}> = scan[
            body={(%0: f32[6]<{data}>, %1: f32[6]<{data}>) {
          %2: f32[6]<{data}> = add %0, %1
          return %1, %2
        }}, length=3, num_carry=2, num_consts=0, reverse=false] %0, %1
        return %3
      }}] %1, %2, %0
      %4: i32[]<> = constant[dtype=i32, shape=[], value=1.0]
      %5: i32[]<> = add %1, %4
      %6: f32[6]<{data}>, %7: i32[]<> = optimization_barrier %3, %5
      return %7, %6
    }}, condition={(%0: f32[6]<{data}>, %1: i32[]<>, %2: f32[6]<{data}>) {
      %3: i32[]<> = constant[dtype=i32, shape=[], value=3.0]
      %4: bool[]<> = compare[direction="lt"] %1, %3
      return %4
    }}, num_consts=1] %2, %1, %0
    %5: f32[6]<{data}> = add %4, %0
    return %4, %5
  }}, length=4, num_carry=1, num_consts=0, reverse=true] %0, %1, %2
  return %3, %4
})";

TEST(Control, NestedInOneAnother) {
  const Function f = parsed("data=2", kNested);
  HostArray first(i32({4}));
  for (std::int32_t i = 0; i < 4; ++i) first.data<std::int32_t>()[static_cast<std::size_t>(i)] = i;
  const Arrays inputs = inputs_of(f, {random_array(f32({6}), 9), first});
  check(f, inputs, {0, -1});
  run::Engine::instance().reset_collective_counts();
  run_partitioned(f, {}, inputs);
  // The inner loops start at 0, 1, 2 and 3 and end at 3. Only round 0 takes the first branch.
  EXPECT_EQ(run::Engine::instance().collective_counts().at("all_reduce").count, 1);
}

TEST(Control, ResultsThatNobodyReads) {
  const Function f = parsed("data=2", R"((%0: f32[6]<{data}>, %1: f32[3,6]<{},{data}>) {
  %2: f32[6]<{data}>, %3: f32[3,6]<{},{data}>, %4: f32[3,6]<{},{data}> = scan[
      body={(%0: f32[6]<{data}>, %1: f32[6]<{data}>) {
    %2: f32[6]<{data}> = add %0, %1
    %3: f32[6]<{data}> = mul %0, %1
    return %2, %2, %3
  }}, length=3, num_carry=1, num_consts=0, reverse=false] %0, %1
  return %4
})");
  check(f, inputs_of(f));
}

/// There are fewer elements than devices, so some tiles are empty.
TEST(Control, EmptyTiles) {
  for (const char* size : {"0", "1", "3"}) {
    const Function f = parsed("data=4", replaced(R"((%0: f32[N]<{data}>, %1: f32[3,N]<{},{data}>) {
  %2: f32[N]<{data}>, %3: f32[N]<{data}>, %4: f32[3,N]<{},{data}>, %5: f32[3]<{}> = scan[
      body={(%0: f32[N]<{data}>, %1: f32[N]<{data}>, %2: f32[N]<{data}>) {
    %3: f32[N]<{data}> = add %0, %2
    %4: f32[]<+{data}> = reduce_max[dims=[0]] %3
    %5: f32[]<> = all_reduce[reduction="max"] %4
    return %1, %3, %3, %5
  }}, length=3, num_carry=2, num_consts=0, reverse=false] %0, %0, %1
  return %2, %3, %4, %5
})",
                                                 "N", size));
    check(f, inputs_of(f), {0, -1, 1, -1});
  }
}

TEST(Control, ShardingsOfBodiesMustAgree) {
  const Function f = ir::parse(R"(function main[mesh="data=2", grains=8](%0: f32[6]<{data}>) {
  %1: f32[6]<{data}> = scan[body={(%0: f32[6]<{}>) {
    %1: f32[6]<{}> = add %0, %0
    return %1
  }}, length=3, num_carry=1, num_consts=0, reverse=false] %0
  return %1
})");
  EXPECT_THROW(compile(f, {.is_donated = {false}, .output_alias = {-1}}), InternalError);
}

TEST(Control, CallsNeverComeThisFar) {
  const Function f = ir::parse(R"(function main[mesh="none", grains=8](%0: f32[6]<{}>) {
  %1: f32[6]<{}> = call[body={(%0: f32[6]<{}>) {
    %1: f32[6]<{}> = add %0, %0
    return %1
  }}, name="double"] %0
  return %1
})");
  EXPECT_THROW(compile(f, {.is_donated = {false}, .output_alias = {-1}}), InternalError);
}

TEST(Control, BarriersAreDissolved) {
  const Function f = parsed("data=2", R"((%0: f32[6]<{data}>, %1: f32[6]<{data}>) {
  %2: f32[6]<{data}>, %3: f32[6]<{data}> = optimization_barrier %0, %1
  %4: f32[6]<{data}> = optimization_barrier %3
  %5: f32[6]<{data}> = mul %2, %4
  return %5, %4
})");
  const auto executable = compile(f, {.is_donated = {false, false}, .output_alias = {-1, -1}});
  EXPECT_EQ(executable->arena_bytes, 0);
  check(f, inputs_of(f), {0, 1});
}

// --- work that moves into loops ------------------------------------------------------------------

/// A training step of three layers x = x w with momentum. Inputs: x, w, m and the rate; outputs: w,
/// m and x. BEHIND is inserted after the gradients %11; UPDATE is the update of w.
const char* const kTraining = R"((%0: f32[4,6]<{data},{}>, %1: f32[3,6,6]<{},{},{}>,
    %2: f32[3,6,6]<{},{},{}>, %3: f32[]<>) {
  %4: f32[4,6]<{data},{}>, %5: f32[3,4,6]<{},{data},{}> = scan[
      body={(%0: f32[4,6]<{data},{}>, %1: f32[6,6]<{},{}>) {
    %2: f32[4,6]<{data},{}> = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[],
        rhs_contract=[0]] %0, %1
    return %2, %0
  }}, length=3, num_carry=1, num_consts=0, reverse=false] %0, %1
  %10: f32[4,6]<{data},{}>, %11: f32[3,6,6]<{},{},{}> = scan[
      body={(%0: f32[4,6]<{data},{}>, %1: f32[4,6]<{data},{}>, %2: f32[6,6]<{},{}>) {
    %3: f32[6,6]<{},{}+{data}> = dot_general[lhs_batch=[], lhs_contract=[0], rhs_batch=[],
        rhs_contract=[0]] %1, %0
    %4: f32[6,6]<{},{}> = all_reduce[reduction="sum"] %3
    %5: f32[4,6]<{data},{}> = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[],
        rhs_contract=[1]] %0, %2
    return %5, %4
  }}, length=3, num_carry=1, num_consts=0, reverse=true] %4, %5, %1
  %12: f32[3,6,6]<{},{},{}> = constant[dtype=f32, shape=[3,6,6], value=0.5]
  %13: f32[3,6,6]<{},{},{}> = mul %2, %12
  %14: f32[3,6,6]<{},{},{}> = add %13, %11
  %15: f32[]<> = mul %3, %3
  %16: f32[3,6,6]<{},{},{}> = broadcast_in_dim[dims=[], shape=[3,6,6]] %15
  %17: f32[3,6,6]<{},{},{}> = mul %14, %16
BEHIND
  %18: f32[3,6,6]<{},{},{}> = sub %1, UPDATE
  return %18, %14, %10OTHER
})";

Function training(const std::string& behind = "", const std::string& update = "%17",
                  const std::string& other = "") {
  std::string text = replaced(kTraining, "BEHIND", behind);
  text = replaced(replaced(text, "UPDATE", update), "OTHER", other);
  return ir::without_dead_code(parsed("data=2", text));
}

const ir::Equation& last_scan(const Function& f) {
  const auto found = std::find_if(f.equations.rbegin(), f.equations.rend(),
                                  [](const ir::Equation& e) { return e.op == &ops::scan_op; });
  return *found;
}

TEST(Sink, UpdatesMoveIntoTheLoopThatMakesTheirGradients) {
  const Function f = training();
  const Function sunk = sink_into_loops(f);
  ir::verify(sunk, "the test");
  // The equations are the square of the rate and two loops. The last loop returns x and the new w
  // and m instead of the gradients.
  EXPECT_EQ(sunk.equations.size(), 3U) << ir::print(sunk);
  EXPECT_EQ(last_scan(sunk).results.size(), 3U);
  EXPECT_EQ(last_scan(sunk).operands.size(), 5U) << "w is scanned once";
  const Arrays inputs = inputs_of(f);
  EXPECT_EQ(testing::first_difference(testing::run_reference(sunk, inputs),
                                      testing::run_reference(f, inputs)),
            std::nullopt);
  check(sunk, inputs, {1, 2, 0});
}

TEST(Sink, UpdatesStayInPlace) {
  const CompileOptions options{.is_donated = {false, true, true, false},
                               .output_alias = {1, 2, -1}};
  const Function f = training();
  const auto apart = compile(f, options);
  const auto sunk = compile(sink_into_loops(f), options);
  EXPECT_EQ(sunk->outputs[0].alias, 1);
  EXPECT_EQ(sunk->outputs[1].alias, 2);
  EXPECT_LE(sunk->arena_bytes, apart->arena_bytes - 6 * 6 * 4);
  EXPECT_LT(sunk->device_peak_bytes, apart->device_peak_bytes);
}

TEST(Sink, WorkStaysWhereItsLoopCannotDoIt) {
  const char* const kNorm = R"(  %20: f32[]<> = reduce_sum[dims=[0,1,2]] %11
  %21: f32[3,6,6]<{},{},{}> = broadcast_in_dim[dims=[], shape=[3,6,6]] %20
  %22: f32[3,6,6]<{},{},{}> = mul %17, %21)";
  const Function unchanged[] = {
      training(kNorm, "%22"),        // needs all gradients first
      training("", "%17", ", %11"),  // the gradients are outputs
      training("  %20: f32[6,6]<{},{}> = reduce_sum[dims=[0]] %2", "%17", ", %20"),  // needs old m
  };
  for (const Function& f : unchanged) EXPECT_EQ(sink_into_loops(f), f) << ir::print(f);
}

TEST(Sink, WhatCannotMoveStaysBehindWhatCan) {
  const std::pair<const char*, const char*> behind[] = {
      {"  %20: f32[3,6,6]<{},{},{}> = optimization_barrier %17", "%20"},
      {"  %20: f32[3,6,6]<{},{},{}> = transpose[permutation=[0,2,1]] %17", "%20"},
      {"  %20: f32[6,6]<{},{}> = reduce_sum[dims=[0]] %17\n"
       "  %21: f32[3,6,6]<{},{},{}> = broadcast_in_dim[dims=[1,2], shape=[3,6,6]] %20",
       "%21"},
  };
  for (const auto& [text, update] : behind) {
    const Function f = training(text, update);
    const Function sunk = sink_into_loops(f);
    EXPECT_EQ(last_scan(sunk).results.size(), 2U) << "x and m\n" << ir::print(sunk);
    const Arrays inputs = inputs_of(f);
    EXPECT_EQ(testing::first_difference(testing::run_reference(sunk, inputs),
                                        testing::run_reference(f, inputs)),
              std::nullopt);
    check(sunk, inputs, {1, 2, 0});
  }
}

TEST(Sink, ResultsMayBeReadOutsideTooIfTheyAreOutputs) {
  const Function f = training("  %20: f32[]<> = reduce_sum[dims=[0,1,2]] %14", "%17", ", %20");
  const Function sunk = sink_into_loops(f);
  EXPECT_EQ(last_scan(sunk).results.size(), 3U);
  check(sunk, inputs_of(f), {1, 2, 0, -1});
}

}  // namespace
}  // namespace tessera::compile
