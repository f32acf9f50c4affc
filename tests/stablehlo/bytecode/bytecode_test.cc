// Compares modules that JAX wrote with the text that jaxlib gives for them (make_modules.py).
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include <tessera/error.h>

#include "stablehlo/bytecode/module.h"
#include "tests/cases/case_file.h"
#include "tests/cases/source_dir.h"
#include "tests/stablehlo/bytecode/names.h"

namespace tessera::stablehlo::bytecode {
namespace {

using testing::contents;
using testing::names_in;

std::filesystem::path folder() { return source_dir() / "tests/stablehlo/bytecode/modules"; }

class Bytecode : public ::testing::TestWithParam<std::string> {};

TEST_P(Bytecode, PrintsAsJaxlibDoes) {
  const auto module = read_module(contents(folder() / (GetParam() + ".mlirbc")));
  EXPECT_EQ(print(*module), contents(folder() / (GetParam() + ".txt")));
}

// A file that was not copied to its end.
TEST_P(Bytecode, PartsOfItAreRefused) {
  const std::string bytes = contents(folder() / (GetParam() + ".mlirbc"));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(read_module(bytes.substr(0, size)), UserError) << size << " bytes";
  }
}

INSTANTIATE_TEST_SUITE_P(Modules, Bytecode, ::testing::ValuesIn(names_in(folder(), ".mlirbc")),
                         [](const auto& test) { return test.param; });

const Operation* find(const Operation& root, std::string_view name) {
  if (root.name == name) return &root;
  for (const Region& region : root.regions) {
    for (const Operation& each : region.operations) {
      if (const Operation* found = find(each, name)) return found;
    }
  }
  return nullptr;
}

TEST(BytecodeModule, LocationsNameTheInnermostLine) {
  const auto module = read_module(contents(folder() / "scan.mlirbc"));
  const Operation* product = find(module->root, "vhlo.dot_general_v2");
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(line_of(product->location).file, "programs.py");
  std::ifstream program(source_dir() / "tests/stablehlo/bytecode/programs.py");
  std::string line;
  for (std::uint32_t i = 0; i < line_of(product->location).line; ++i) std::getline(program, line);
  EXPECT_NE(line.find("c @ m"), std::string::npos) << line;
}

TEST(BytecodeModule, TextMayLeaveLocationsOut) {
  const auto module = read_module(contents(folder() / "shard_map.mlirbc"));
  const std::string text = print(*module, {.locations = false});
  EXPECT_EQ(text.find("loc("), std::string::npos);
  EXPECT_NE(text.find("sdy.manual_computation"), std::string::npos);
}

}  // namespace
}  // namespace tessera::stablehlo::bytecode
