#include "tests/pjrt/plugin.h"

#include <cstdlib>
#include <glob.h>

#include <tessera/engine.h>

namespace tessera::testing {

std::string test_plugin() {
  std::string path;
  if (const char* variable = std::getenv("TESSERA_PJRT_PLUGIN")) path = variable;
  glob_t found = {};
  if (path.empty() && glob(TESSERA_TEST_PLUGINS, 0, nullptr, &found) == 0) path = *found.gl_pathv;
  globfree(&found);
  return path.empty() ? path : "pjrt:" + path + ",cpu_device_count=8";
}

void Pjrt::SetUp() {
  if (test_plugin().empty()) GTEST_SKIP() << "no PJRT plugin; ./check --all installs one";
}

void Pjrt::TearDown() { set_engine("host"); }

}  // namespace tessera::testing
