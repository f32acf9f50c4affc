// Problems of a plugin are reported before anything runs.
#include <filesystem>
#include <fstream>
#include <iterator>

#include <tessera/engine.h>
#include <tessera/error.h>
#include <tessera/jit.h>
#include <tessera/ops.h>
#include <tessera/shardings.h>

#include "run/pjrt/options.h"
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

TEST(PjrtPaths, OfAnotherProcessor) {
  std::ifstream own(TESSERA_SHARED_LIBRARY, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(own), {}};
  constexpr std::size_t kMachine = 18;  // in the header of the file
  ASSERT_GT(bytes.size(), kMachine);
  bytes[kMachine] = static_cast<char>(243);  // riscv
  const std::string path = ::testing::TempDir() + "riscv_plugin.so";
  std::ofstream(path, std::ios::binary) << bytes;
  const Mistake mistake = mistake_of_engine("pjrt:" + path);
  EXPECT_EQ(mistake.what, "set_engine: the PJRT plugin is for another processor");
  EXPECT_EQ(mistake.found, path + ", for riscv");
  EXPECT_EQ(mistake.cure, "install the package of the plugin for this machine");
  std::filesystem::remove(path);
}

/// The plugin is where pip installs it, in an environment that is on PATH but not activated.
TEST(PjrtPaths, OfTheGpuPluginBesidePython) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(::testing::TempDir()) / "gpu_environment";
  const fs::path packages = root / "lib/python3.12/site-packages/jax_plugins/xla_cuda13";
  fs::create_directories(packages);
  fs::create_directories(root / "bin");
  std::ofstream(root / "bin/python3") << "";
  fs::copy_file(TESSERA_SHARED_LIBRARY, packages / "xla_cuda_plugin.so");
  const std::string path = std::getenv("PATH");
  const CommandOutcome outcome =
      run_command("/usr/bin/env",
                  "-u VIRTUAL_ENV -u CONDA_PREFIX PATH=" + (root / "bin:").string() + path + " " +
                      TESSERA_COMMAND + " devices --backend gpu",
                  "", root);
  EXPECT_EQ(outcome.exit_code, 1);
  const std::string found =
      (packages / "xla_cuda_plugin.so").string() + " without the function GetPjrtApi";
  EXPECT_NE(outcome.stderr_text.find(found), std::string::npos) << outcome.stderr_text;
  fs::remove_all(root);
}

TEST(PjrtPaths, OfAPluginThatNeedsALibrary) {
  const Mistake mistake = mistake_of_engine("pjrt:" TESSERA_NEEDING_PLUGIN);
  EXPECT_EQ(mistake.what, "set_engine: the PJRT plugin cannot be loaded");
  EXPECT_NE(mistake.found.find("libpjrt_needed.so: cannot open shared object file"),
            std::string::npos)
      << mistake.found;
  EXPECT_NE(mistake.cure.find("LD_LIBRARY_PATH"), std::string::npos) << mistake.cure;
}

TEST(PjrtOptions, ThatAreMisspelt) {
  const Mistake mistake = mistake_of_engine("pjrt:x.so,cpu_device_cuont=8");
  EXPECT_EQ(mistake.what, "set_engine: the PJRT plugin has no option of this name");
  EXPECT_EQ(mistake.found, "cpu_device_cuont=8");
  EXPECT_EQ(mistake.wanted, "the name of an option, such as cpu_device_count");
  EXPECT_EQ(mistake.cure, "write cpu_device_count=8");
}

TEST(PjrtOptions, HaveTheTypesOfTheirValues) {
  using Type = run::pjrt::abi::NamedValue::Type;
  const run::pjrt::ClientSpec spec =
      run::pjrt::parse_spec("a/b.so,five=5,half=0.5,list=[3,-1],no=false,text=[x],word=bfc", {});
  EXPECT_EQ(spec.path, "a/b.so");
  const run::pjrt::NamedValues values(spec.options);
  const std::vector<run::pjrt::abi::NamedValue>& all = values.all();
  ASSERT_EQ(all.size(), 6U);
  EXPECT_EQ(all[0].type, Type::int64);
  EXPECT_EQ(all[0].int64, 5);
  EXPECT_EQ(all[1].type, Type::float32);
  EXPECT_EQ(all[1].float32, 0.5F);
  EXPECT_EQ(all[2].type, Type::int64_list);
  EXPECT_EQ(std::vector<std::int64_t>(all[2].int64_list, all[2].int64_list + all[2].value_size),
            (std::vector<std::int64_t>{3, -1}));
  EXPECT_EQ(all[3].type, Type::boolean);
  EXPECT_FALSE(all[3].boolean);
  EXPECT_EQ(all[4].type, Type::text);
  EXPECT_EQ(std::string(all[5].text, all[5].value_size), "bfc");
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
  EXPECT_EQ(old.what, "set_engine: the version of the PJRT plugin is not supported");
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
    EXPECT_EQ(error.mistake().wanted, "at least 16 devices, one for each device of the mesh");
  }
}

}  // namespace
}  // namespace tessera::testing
