// A PJRT plugin for tests: $TESSERA_PJRT_PLUGIN, or the one that `./check --all` installs.
#pragma once

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/cases/case_file.h"

namespace tessera::testing {

/// Its path; empty if there is none.
std::string test_plugin_path();
/// "pjrt:PATH,cpu_device_count=8"; empty if there is none.
std::string test_plugin();
/// The same for a plugin that passes calls on to that one, and that has a fault (faulty_plugin.cc)
/// while this object exists.
class FaultyPlugin {
 public:
  explicit FaultyPlugin(const std::string& fault);
  ~FaultyPlugin();
  FaultyPlugin(const FaultyPlugin&) = delete;
  FaultyPlugin& operator=(const FaultyPlugin&) = delete;
  static std::string engine();
};

/// Skips its tests if there is no plugin; the host engine is the current one before and after each.
class Pjrt : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
};

/// Runs the command line in a separate folder.
class PjrtCommands : public Pjrt {
 protected:
  void SetUp() override;
  void TearDown() override;
  CommandOutcome run(const std::string& arguments) const;
  /// The losses of a run that must succeed.
  std::vector<double> losses(const std::string& arguments) const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

}  // namespace tessera::testing
