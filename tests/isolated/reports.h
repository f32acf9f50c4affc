// Collects what the processes of a run report, in files of a temporary folder.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <tessera/engine.h>
#include <tessera/error.h>

namespace tessera::testing {

/// Runs a body in each process. The text of an exception is written to a file of `folder`, named by
/// the rank or "parent", or to standard error if there is no folder. Exit codes: 2 for a
/// RuntimeFault, 3 for other exceptions.
class ReportingProgram final : public IsolatedProgram {
 public:
  explicit ReportingProgram(std::function<void()> body, std::filesystem::path folder = {})
      : body_(std::move(body)), folder_(std::move(folder)) {}
  void run() override { body_(); }
  int report(const std::exception_ptr& error) override {
    try {
      std::rethrow_exception(error);
    } catch (const RuntimeFault& fault) {
      write(fault.what());
      return 2;
    } catch (const std::exception& other) {
      write(other.what());
      return 3;
    }
  }

 private:
  void write(const std::string& text) const {
    const std::string name = process_count() == 1 ? "parent" : std::to_string(process_index());
    if (folder_.empty()) {
      std::fprintf(stderr, "rank %s: %s\n", name.c_str(), text.c_str());
    } else {
      std::ofstream(folder_ / name) << text;
    }
  }

  std::function<void()> body_;
  std::filesystem::path folder_;
};

/// Runs a program for all devices in a child process and returns its exit code, -1 for a signal.
/// The child is needed because a process that has computed something can start no others.
inline int run_in_child(IsolatedProgram& program) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 0;
    try {
      program.run();
    } catch (...) {
      code = program.report(std::current_exception());
    }
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// A test that runs such programs and reads their reports.
class ReportedRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "isolated_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  int run(const IsolatedOptions& options, std::function<void()> body) const {
    ReportingProgram program(std::move(body), folder_);
    return run_isolated(program, options);
  }

  /// The report of a rank, or of "parent".
  std::string report(const std::string& name) const {
    std::ifstream file(folder_ / name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace tessera::testing
