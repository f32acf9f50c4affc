// Runs tests/golden/*/*.case and compares exit code and output of each command with the file.
// TESSERA_UPDATE=1 in the environment rewrites the files instead.
#include <gtest/gtest.h>

#include "tests/cases/case_file.h"
#include "tests/cases/source_dir.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = source_dir() / "tests/golden";

class Golden : public ::testing::TestWithParam<fs::path> {};

TEST_P(Golden, IsWhatTheCommandWrites) {
  CaseFile expected = read_case(GetParam());
  const std::size_t space = expected.command.find(' ');
  const std::string program = expected.command.substr(0, space);
  ASSERT_TRUE(program == "tessera" || program == "tessera-opt") << expected.command;
  const std::string arguments =
      space == std::string::npos ? "" : expected.command.substr(space + 1);
  const CommandOutcome outcome =
      run_command(program == "tessera" ? TESSERA_COMMAND : TESSERA_OPT_COMMAND, arguments,
                  expected.stdin_text, kFolder);
  if (is_updating()) {
    expected.exit_code = outcome.exit_code;
    expected.stdout_text = outcome.stdout_text;
    expected.stderr_text = outcome.stderr_text;
    write_case(GetParam(), expected);
    return;
  }
  EXPECT_EQ(outcome.exit_code, expected.exit_code);
  EXPECT_EQ(outcome.stdout_text, expected.stdout_text);
  EXPECT_EQ(outcome.stderr_text, expected.stderr_text);
}

std::string case_name(const ::testing::TestParamInfo<fs::path>& file) {
  return file.param.parent_path().filename().string() + "_" + file.param.stem().string();
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, ::testing::ValuesIn(case_files(kFolder)), case_name);

}  // namespace
}  // namespace tessera::testing
