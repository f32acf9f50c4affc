// The StableHLO form of each op's record: golden/OP.mlir is the module of its first sample, or the
// error of an op that has no form. TESSERA_UPDATE=1 writes the files.
#include "ir/text.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include <tessera/error.h>

#include "stablehlo/stablehlo.h"
#include "tests/cases/source_dir.h"
#include "tests/ops/sample_inputs.h"

namespace tessera::testing {
namespace {

std::filesystem::path golden_folder() { return source_dir() / "tests/stablehlo/golden"; }

std::string text_of(const ops::OpRecord& op) {
  try {
    return stablehlo::emit(function_of(op, (*op.samples)[0]));
  } catch (const UserError& error) {
    return std::string(error.what()) + "\n";
  }
}

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class StableHloText : public ::testing::TestWithParam<const ops::OpRecord*> {};

TEST_P(StableHloText, IsThatOfTheGoldenFile) {
  const ops::OpRecord& op = *GetParam();
  const std::filesystem::path path = golden_folder() / (*op.name + ".mlir");
  if (std::getenv("TESSERA_UPDATE") != nullptr) std::ofstream(path) << text_of(op);
  EXPECT_EQ(text_of(op), read(path)) << path;
}

INSTANTIATE_TEST_SUITE_P(AllOps, StableHloText, ::testing::ValuesIn(ops::all_ops()),
                         [](const auto& op) { return *op.param->name; });

TEST(StableHlo, HasOneFilePerOp) {
  std::size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator(golden_folder())) {
    EXPECT_NE(ir::find_op(file.path().stem().string()), nullptr) << file.path();
    ++count;
  }
  EXPECT_EQ(count, ops::all_ops().size());
}

TEST(StableHlo, SaysWhyAnOpHasNoForm) {
  for (const ops::OpRecord* op : ops::all_ops()) {
    if (op->stablehlo.has_form()) continue;
    EXPECT_NE(op->stablehlo.why_not(), "") << *op->name;
    EXPECT_THROW(stablehlo::emit(function_of(*op, (*op->samples)[0])), UserError) << *op->name;
  }
}

ir::Function parsed(const std::string& text) { return ir::parse(text); }

TEST(StableHlo, PadsLargeDimensionsOfProductsToAMultiple) {
  const ir::Function product = parsed(R"(
function main[mesh="none", grains=8](%0: bf16[5,12], %1: bf16[12,70]) {
  %2: f32[5,70] = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[0]] %0, %1
  return %2
})");
  const std::string text = stablehlo::emit(product, {.pads_products_from = 12});
  const auto has = [&](const std::string& line) { return text.find(line) != std::string::npos; };
  EXPECT_TRUE(has("low = [0, 0], high = [0, 52], interior = [0, 0]")) << text;
  EXPECT_TRUE(has("(tensor<5x64xbf16>, tensor<64x128xbf16>) -> tensor<5x128xf32>")) << text;
  EXPECT_TRUE(has("(tensor<5x128xf32>) -> tensor<5x70xf32>")) << text;
  EXPECT_EQ(stablehlo::emit(product).find("stablehlo.pad"), std::string::npos);
  EXPECT_EQ(stablehlo::emit(product, {.pads_products_from = 71}).find("stablehlo.pad"),
            std::string::npos);
}

TEST(StableHlo, DonatedInputsGiveTheirMemoryToResultsOfTheirType) {
  const std::string text = stablehlo::emit(parsed(R"(
function main[mesh="none", grains=8](%0: f32[4], %1: f32[4], %2: f32[2], %3: f32[4]) {
  %4: f32[4] = add %0, %1
  %5: f32[4] = mul %4, %3
  return %4, %5
})"),
                                           {.donated = {true, false, true, true}});
  EXPECT_NE(text.find("main(%arg0: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %arg1: "
                      "tensor<4xf32>, %arg2: tensor<2xf32> {jax.buffer_donor = true}, %arg3: "
                      "tensor<4xf32> {tf.aliasing_output = 1 : i32})"),
            std::string::npos)
      << text;
}

TEST(StableHlo, NothingIsMaskedWhereTilesAreEqual) {
  const std::string head = "function main[mesh=\"data=4\", grains=8](%0: f32[";
  const std::string tail = R"(,3]<{data},{}>) {
  %1: f32[3]<{}+{data}> = reduce_sum[dims=[0]] %0
  %2: f32[3]<{}> = all_reduce[reduction="sum"] %1
  return %2
})";
  EXPECT_EQ(stablehlo::emit(parsed(head + "8" + tail)).find("replica_id"), std::string::npos);
  EXPECT_NE(stablehlo::emit(parsed(head + "10" + tail)).find("replica_id"), std::string::npos);
}

/// The pad moves elements. It cuts off as many as it adds.
TEST(StableHlo, APadThatKeepsTheSizeIsKept) {
  const auto text_of = [](const std::string& low) {
    return stablehlo::emit(
        parsed("function main[mesh=\"none\", grains=8](%0: i32[4], %1: f32[4]) {\n  %2: f32[4] = "
               "spread_from_windows[low=[" +
               low + "], shape=[4], stride=[1], window=[1]] %0, %1\n  return %2\n}"));
  };
  EXPECT_NE(text_of("1").find("stablehlo.pad"), std::string::npos);
  EXPECT_EQ(text_of("0").find("stablehlo.pad"), std::string::npos);
}

TEST(StableHlo, StringsOfLocationsAreEscaped) {
  ir::Function function = parsed(
      "function main[mesh=\"none\", grains=8](%0: f32[4]) {\n  %1: f32[4] = neg %0\n  return "
      "%1\n}");
  function.equations[0].span = {"a \"b\".cc", 7};
  EXPECT_NE(stablehlo::emit(function).find(R"(loc("a \22b\22.cc":7:0))"), std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
