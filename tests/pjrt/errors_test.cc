// What is wrong with a plugin is told before anything runs.
#include <tessera/engine.h>
#include <tessera/error.h>
#include <tessera/jit.h>
#include <tessera/ops.h>
#include <tessera/shardings.h>

#include "tests/pjrt/plugin.h"

namespace tessera::testing {
namespace {

class PjrtErrors : public Pjrt {};

Mistake mistake_of_engine(const std::string& name) {
  try {
    set_engine(name);
  } catch (const UserError& error) {
    EXPECT_NE(error.mistake().where.file, "");
    EXPECT_EQ(engine(), "host");
    return error.mistake();
  }
  ADD_FAILURE() << name << " is accepted";
  return {.what = "", .cure = ""};
}

TEST(PjrtPaths, ThatAreNoPlugins) {
  EXPECT_EQ(mistake_of_engine("pjrt:/no/plugin.so").what,
            "set_engine: the PJRT plugin cannot be loaded");
  EXPECT_EQ(mistake_of_engine("pjrt:README.md").what,
            "set_engine: the PJRT plugin cannot be loaded");
  EXPECT_EQ(mistake_of_engine("pjrt:" TESSERA_SHARED_LIBRARY).what,
            "set_engine: the shared library is not a PJRT plugin");
}

TEST(PjrtPaths, ThatAreNotWellFormed) {
  for (const char* name : {"pjrt:", "pjrt:x.so,", "pjrt:x.so,a", "pjrt:x.so,=1", "pjrt:x.so,a="}) {
    EXPECT_EQ(mistake_of_engine(name).what,
              "set_engine: the engine pjrt needs the path of a plugin")
        << name;
  }
}

TEST(PjrtVersions, ThatAreTooOldOrNewAreRefused) {
  const Mistake old = mistake_of_engine("pjrt:" TESSERA_OLD_PLUGIN);
  EXPECT_EQ(old.what, "set_engine: the PJRT plugin has a version that is not supported");
  EXPECT_NE(old.found.find("with version 0.57"), std::string::npos) << old.found;
  EXPECT_EQ(old.wanted, "version 0.58 or a later 0.x");
}

TEST_F(PjrtErrors, TooFewDevices) {
  set_engine(test_plugin());
  const Array x =
      device_put(astype(arange(16), DType::f32), NamedSharding(make_mesh({{"a", 16}}), P{"a"}));
  try {
    jit([](const Array& y) { return y * 2.0F; }, {.name = "twice"})(x);
    FAIL() << "16 devices";
  } catch (const UserError& error) {
    EXPECT_EQ(error.mistake().what, "twice: the PJRT plugin has too few devices");
    EXPECT_EQ(error.mistake().found, "8, platform cpu");
    EXPECT_EQ(error.mistake().wanted, "at least 16 devices, one for each of the mesh");
  }
}

}  // namespace
}  // namespace tessera::testing
