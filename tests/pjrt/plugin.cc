#include "tests/pjrt/plugin.h"

#include <cstdlib>
#include <fstream>
#include <glob.h>
#include <nlohmann/json.hpp>

#include <tessera/engine.h>

namespace tessera::testing {

namespace fs = std::filesystem;

std::string test_plugin_path() {
  if (const char* variable = std::getenv("TESSERA_PJRT_PLUGIN")) return variable;
  std::string path;
  glob_t found = {};
  if (glob(TESSERA_TEST_PLUGINS, 0, nullptr, &found) == 0) path = *found.gl_pathv;
  globfree(&found);
  return path;
}

namespace {

std::string engine_at(const std::string& path) { return "pjrt:" + path + ",cpu_device_count=8"; }

}  // namespace

std::string test_plugin() {
  const std::string path = test_plugin_path();
  return path.empty() ? path : engine_at(path);
}

FaultyPlugin::FaultyPlugin(const std::string& fault) {
  setenv("TESSERA_WRAPPED_PLUGIN", test_plugin_path().c_str(), 1);
  setenv("TESSERA_PLUGIN_FAULT", fault.c_str(), 1);
}

FaultyPlugin::~FaultyPlugin() { unsetenv("TESSERA_PLUGIN_FAULT"); }

std::string FaultyPlugin::engine() { return engine_at(TESSERA_FAULTY_PLUGIN); }

void Pjrt::SetUp() {
  if (test_plugin().empty()) GTEST_SKIP() << "no PJRT plugin; ./check --all installs one";
}

void Pjrt::TearDown() { set_engine("host"); }

void PjrtCommands::SetUp() {
  Pjrt::SetUp();
  std::string name = (fs::temp_directory_path() / "pjrt_XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  folder_ = name;
}

void PjrtCommands::TearDown() {
  fs::remove_all(folder_);
  Pjrt::TearDown();
}

CommandOutcome PjrtCommands::run(const std::string& arguments) const {
  return run_command(TESSERA_COMMAND, arguments + " --progress off", "", folder_);
}

std::vector<double> PjrtCommands::losses(const std::string& arguments) const {
  const CommandOutcome outcome = run(arguments + " --json r.json");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  std::ifstream file(folder_ / "r.json");
  const nlohmann::json report = nlohmann::json::parse(file, nullptr, false);
  EXPECT_TRUE(report.is_object());
  return report.value("losses", std::vector<double>());
}

}  // namespace tessera::testing
