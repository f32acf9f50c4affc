#include "tests/faults/support.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/cases/case_file.h"

namespace tessera::testing {

namespace fs = std::filesystem;

namespace {

/// Starts a shell command line in a folder, in its own process group.
pid_t start(const std::string& words, const fs::path& folder) {
  // The output of an earlier command must not be taken for the output of this one.
  fs::remove(folder / "out");
  fs::remove(folder / "err");
  const std::string line = "exec >out 2>err; " + words;
  const pid_t child = fork();
  if (child != 0) return child;
  setpgid(0, 0);
  setenv("TESSERA", TESSERA_COMMAND, 1);
  setenv("TESSERA_OPT", TESSERA_OPT_COMMAND, 1);
  if (chdir(folder.c_str()) == 0) {
    execl("/bin/bash", "bash", "-c", line.c_str(), static_cast<char*>(nullptr));
  }
  _exit(127);
}

Ended ended(int status, const fs::path& folder) {
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
          .out = contents(folder / "out"),
          .err = contents(folder / "err")};
}

}  // namespace

void FaultTest::SetUp() {
  std::string name = (fs::temp_directory_path() / "tessera_faults_XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  folder_ = name;
}

void FaultTest::TearDown() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

Ended FaultTest::shell(const std::string& words) const {
  const pid_t child = start(words, folder_);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return ended(status, folder_);
}

nlohmann::json FaultTest::object(const std::string& name) const {
  return nlohmann::json::parse(text(name), nullptr, false);
}

std::string FaultTest::text(const std::string& name) const { return contents(folder_ / name); }

std::vector<std::string> FaultTest::names(const std::string& name) const {
  std::vector<std::string> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / name, error)) {
    found.push_back(entry.path().filename().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> FaultTest::whole_steps(const std::string& name) const {
  const Ended outcome = tessera("checkpoint verify " + name);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  return names(name);
}

RunningCommand::RunningCommand(const std::string& words, const fs::path& folder)
    : folder_(folder), pid_(start("exec \"$TESSERA\" " + words, folder)) {}

RunningCommand::~RunningCommand() {
  kill(-pid_, SIGKILL);
  if (!has_ended_) waitpid(pid_, nullptr, 0);
}

std::vector<pid_t> RunningCommand::children() const {
  const std::string self = std::to_string(pid_);
  std::istringstream list(contents("/proc/" + self + "/task/" + self + "/children"));
  std::vector<pid_t> found;
  for (pid_t child = 0; list >> child;) found.push_back(child);
  return found;
}

bool RunningCommand::has_ended() {
  if (!has_ended_) has_ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return has_ended_;
}

bool RunningCommand::has_written(const std::string& text) {
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + std::chrono::minutes(1); Clock::now() < end;) {
    const bool is_over = has_ended();
    if (contents(folder_ / "out").find(text) != std::string::npos) return true;
    if (is_over) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

Ended RunningCommand::wait() {
  if (!has_ended_) {
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) continue;
    has_ended_ = true;
  }
  return ended(status_, folder_);
}

}  // namespace tessera::testing
