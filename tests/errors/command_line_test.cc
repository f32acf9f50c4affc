// Runs the mistakes of tests/errors/KIND/*.case and compares the exit code and standard error with
// the file. If the file has a standard output, that is compared, too. If not, a mistake must be
// found before the first step. TESSERA_UPDATE=1 in the environment rewrites the files instead.
#include <gtest/gtest.h>

#include "tests/cases/case_file.h"
#include "tests/cases/source_dir.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = source_dir() / "tests/errors";

class CommandLine : public ::testing::TestWithParam<fs::path> {};

TEST_P(CommandLine, SaysWhatIsWrong) {
  CaseFile expected = read_case(GetParam());
  const CommandOutcome outcome = run_command(TESSERA_COMMAND, expected.command, "", kFolder);
  if (is_updating()) {
    expected.exit_code = outcome.exit_code;
    expected.stderr_text = outcome.stderr_text;
    if (!expected.stdout_text.empty()) expected.stdout_text = outcome.stdout_text;
    write_case(GetParam(), expected);
    return;
  }
  EXPECT_EQ(outcome.exit_code, expected.exit_code);
  EXPECT_EQ(outcome.stderr_text, expected.stderr_text);
  if (!expected.stdout_text.empty()) {
    EXPECT_EQ(outcome.stdout_text, expected.stdout_text);
    return;
  }
  const bool has_loss = outcome.stdout_text.find("loss") != std::string::npos;
  EXPECT_EQ(has_loss, expected.exit_code == 0) << outcome.stdout_text;
}

std::string case_name(const ::testing::TestParamInfo<fs::path>& file) {
  return file.param.stem().string();
}

INSTANTIATE_TEST_SUITE_P(Cases, CommandLine, ::testing::ValuesIn(case_files(kFolder)), case_name);

}  // namespace
}  // namespace tessera::testing
