// Runs of the command line under hostile conditions, each in a folder of its own.
#pragma once

#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/types.h>
#include <vector>

namespace tessera::testing {

/// How a process ended, and what it wrote.
struct Ended {
  int exit_code = -1;  // -1: by a signal
  int signal = 0;
  std::string out, err;
};

/// A folder that is removed at the end of the test, and programs that run in it.
class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  /// Runs words of a shell, in which $TESSERA is the program. Its output goes to files of the
  /// folder, unless the words say otherwise.
  Ended shell(const std::string& words) const;
  /// The same for `tessera WORDS`.
  Ended tessera(const std::string& words) const { return shell("\"$TESSERA\" " + words); }
  /// The object in a file of the folder.
  nlohmann::json object(const std::string& name) const;
  std::string text(const std::string& name) const;
  /// Names of the steps that are saved in a folder of this one, in order; all of them are whole.
  std::vector<std::string> whole_steps(const std::string& name) const;
  /// Names in a folder, hidden ones included, in order.
  std::vector<std::string> names(const std::string& name) const;

 private:
  std::filesystem::path folder_;
};

/// `tessera WORDS` while it runs, in a group of processes of its own.
class RunningCommand {
 public:
  /// Its output goes to `folder`/out and `folder`/err.
  RunningCommand(const std::string& words, const std::filesystem::path& folder);
  /// Kills what is left of the group.
  ~RunningCommand();
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;

  pid_t pid() const { return pid_; }
  std::vector<pid_t> children() const;
  /// Waits until its output has a text; false when it ends before, or after a minute.
  bool has_written(const std::string& text);
  /// Waits for the end.
  Ended wait();

 private:
  bool has_ended();

  std::filesystem::path folder_;
  pid_t pid_ = 0;
  int status_ = 0;
  bool has_ended_ = false;
};

}  // namespace tessera::testing
