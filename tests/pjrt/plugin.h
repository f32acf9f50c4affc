// A PJRT plugin for tests: $TESSERA_PJRT_PLUGIN, or the one that `./check --all` installs.
#pragma once

#include <gtest/gtest.h>
#include <string>

namespace tessera::testing {

/// "pjrt:PATH,cpu_device_count=8"; empty if there is none.
std::string test_plugin();

/// Skips its tests if there is no plugin; the host engine is the current one before and after each.
class Pjrt : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
};

}  // namespace tessera::testing
