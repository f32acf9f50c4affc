#include "tests/cases/case_file.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::testing {

namespace fs = std::filesystem;

namespace {

/// A temporary file that is removed at the end of the scope.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& purpose) {
    static int count = 0;
    path_ = fs::temp_directory_path() / ("tessera_case_" + std::to_string(getpid()) + "_" +
                                         std::to_string(++count) + "_" + purpose);
  }
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const fs::path& path() const { return path_; }
  std::string quoted() const { return "'" + path_.string() + "'"; }

 private:
  fs::path path_;
};

}  // namespace

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> case_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".case") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

CaseFile read_case(const fs::path& path) {
  std::istringstream file(contents(path));
  CaseFile result;
  std::string* section = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line == "stdin:") {
      section = &result.stdin_text;
    } else if (line == "stdout:") {
      section = &result.stdout_text;
    } else if (line == "stderr:") {
      section = &result.stderr_text;
    } else if (section != nullptr) {
      *section += line + "\n";
    } else if (line.starts_with("command: ")) {
      result.command = line.substr(9);
    } else if (line.starts_with("exit: ")) {
      result.exit_code = std::stoi(line.substr(6));
    } else {
      throw std::runtime_error(path.string() + ": not a line of a case: " + line);
    }
  }
  return result;
}

void write_case(const fs::path& path, const CaseFile& c) {
  std::ofstream file(path);
  file << "command: " << c.command << "\nexit: " << c.exit_code << "\n";
  if (!c.stdin_text.empty()) file << "stdin:\n" << c.stdin_text;
  if (!c.stdout_text.empty()) file << "stdout:\n" << c.stdout_text;
  if (!c.stderr_text.empty()) file << "stderr:\n" << c.stderr_text;
}

CommandOutcome run_command(const fs::path& program, const std::string& arguments,
                           const std::string& stdin_text, const fs::path& folder) {
  const TemporaryFile in("in");
  const TemporaryFile errors("err");
  std::ofstream(in.path(), std::ios::binary) << stdin_text;
  const std::string line = "cd '" + folder.string() + "' && '" + program.string() + "' " +
                           arguments + " <" + in.quoted() + " 2>" + errors.quoted();
  CommandOutcome outcome;
  std::FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> block;
  for (std::size_t n = 0; (n = std::fread(block.data(), 1, block.size(), pipe)) > 0;) {
    outcome.stdout_text.append(block.data(), n);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.stderr_text = contents(errors.path());
  return outcome;
}

bool is_updating() { return std::getenv("TESSERA_UPDATE") != nullptr; }

}  // namespace tessera::testing
