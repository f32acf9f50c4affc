// What the record of each op says in StableHLO: golden/OP.mlir is the module of its first sample,
// or the error of an op that has no form. TESSERA_UPDATE=1 writes the files.
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

}  // namespace
}  // namespace tessera::testing
