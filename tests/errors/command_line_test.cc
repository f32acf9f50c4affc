// Runs the mistakes of tests/errors/*.case and compares exit code and standard error with the file.
// With TESSERA_UPDATE=1 in the environment it writes what the command said into the files instead.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(TESSERA_SOURCE_DIR) / "tests/errors";

/// A case file: `command: ` and `exit: ` lines, then `stderr:` and the expected text.
struct Case {
  std::string command;
  int exit_code = -1;
  std::string stderr_text;
};

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Case read_case(const fs::path& path) {
  std::istringstream file(contents(path));
  Case result;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("command: ")) {
      result.command = line.substr(9);
    } else if (line.starts_with("exit: ")) {
      result.exit_code = std::stoi(line.substr(6));
    } else if (line == "stderr:") {
      std::ostringstream rest;
      if (file.peek() != std::istringstream::traits_type::eof()) rest << file.rdbuf();
      result.stderr_text = rest.str();
      return result;
    } else {
      ADD_FAILURE() << path << ": not a line of a case: " << line;
    }
  }
  ADD_FAILURE() << path << ": there is no line `stderr:`";
  return result;
}

struct Outcome {
  int exit_code = -1;
  std::string stdout_text, stderr_text;
};

/// Runs the command in the folder of the cases; a file takes its standard error.
Outcome run(const std::string& command, const std::string& name) {
  const fs::path errors = fs::temp_directory_path() /
                          ("tessera_case_" + name + "_" + std::to_string(getpid()) + ".txt");
  const std::string line = "cd '" + kFolder.string() + "' && '" TESSERA_COMMAND "' " + command +
                           " 2>'" + errors.string() + "' </dev/null";
  Outcome outcome;
  std::FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> block;
  for (std::size_t n = 0; (n = std::fread(block.data(), 1, block.size(), pipe)) > 0;) {
    outcome.stdout_text.append(block.data(), n);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.stderr_text = contents(errors);
  fs::remove(errors);
  return outcome;
}

std::vector<fs::path> case_files() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".case") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class CommandLine : public testing::TestWithParam<fs::path> {};

TEST_P(CommandLine, SaysWhatIsWrong) {
  const Case expected = read_case(GetParam());
  const Outcome outcome = run(expected.command, GetParam().stem().string());
  if (std::getenv("TESSERA_UPDATE") != nullptr) {
    std::ofstream(GetParam()) << "command: " << expected.command << "\nexit: " << outcome.exit_code
                              << "\nstderr:\n"
                              << outcome.stderr_text;
    return;
  }
  EXPECT_EQ(outcome.exit_code, expected.exit_code);
  EXPECT_EQ(outcome.stderr_text, expected.stderr_text);
  const bool has_loss = outcome.stdout_text.find("loss") != std::string::npos;
  EXPECT_EQ(has_loss, expected.exit_code == 0) << outcome.stdout_text;
}

std::string case_name(const testing::TestParamInfo<fs::path>& file) {
  return file.param.stem().string();
}

INSTANTIATE_TEST_SUITE_P(Cases, CommandLine, testing::ValuesIn(case_files()), case_name);

}  // namespace
