// Runs the command line under hostile conditions, each run in its own folder.
#pragma once

#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/types.h>
#include <vector>

namespace tessera::testing {

/// How a process ended, and its output.
struct Ended {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  std::string out, err;
};

/// A temporary folder that is removed after the test, and functions that run programs in it.
class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  /// Runs a shell command line, in which $TESSERA is the program. Standard output and standard
  /// error go to the files `out` and `err` of the folder, unless `words` redirects them.
  Ended shell(const std::string& words) const;
  /// As shell(), for `tessera WORDS`.
  Ended tessera(const std::string& words) const { return shell("\"$TESSERA\" " + words); }
  /// The JSON object in a file of the folder.
  nlohmann::json object(const std::string& name) const;
  std::string text(const std::string& name) const;
  /// Names of the steps saved in a subfolder, in order. Expects each of them to be undamaged.
  std::vector<std::string> whole_steps(const std::string& name) const;
  /// Names in a subfolder, hidden ones included, in order.
  std::vector<std::string> names(const std::string& name) const;

 private:
  std::filesystem::path folder_;
};

/// `tessera WORDS` while it runs, in its own process group.
class RunningCommand {
 public:
  /// Standard output goes to `folder`/out, standard error to `folder`/err.
  RunningCommand(const std::string& words, const std::filesystem::path& folder);
  /// Kills the processes that are left in the group.
  ~RunningCommand();
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;

  pid_t pid() const { return pid_; }
  std::vector<pid_t> children() const;
  /// Waits until the output contains a text. False if the command ends first or a minute passes.
  bool has_written(const std::string& text);
  /// Waits until the command ends.
  Ended wait();

 private:
  bool has_ended();

  std::filesystem::path folder_;
  pid_t pid_ = 0;
  int status_ = 0;
  bool has_ended_ = false;
};

}  // namespace tessera::testing
