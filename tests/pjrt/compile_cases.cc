// pjrt_compile PLUGIN TARGET KIND [SEED [COUNT]]: compiles programs in StableHLO for a GPU that the
// machine does not have. TARGET is a file that describes the GPU. PLUGIN may have wildcards. The
// exit status is 77 if there is no such plugin: pip install jax-cuda13-pjrt nvidia-cuda-nvcc.
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <glob.h>
#include <iterator>
#include <numeric>
#include <unistd.h>

#include <tessera/error.h>

#include "run/pjrt/abi_programs.h"
#include "run/pjrt/find.h"
#include "run/pjrt/messages.h"
#include "run/pjrt/plugin.h"
#include "tests/stablehlo/cases.h"

namespace {

using namespace tessera;           // NOLINT(google-build-using-namespace)
using namespace tessera::testing;  // NOLINT(google-build-using-namespace)
namespace abi = run::pjrt::abi;

/// One machine with as many of these devices as a case has replicas.
class Target {
 public:
  Target(const std::string& path, std::string target)
      : plugin_(path, {}), cuda_folder_(run::pjrt::find_cuda_folder(path)), target_(target) {}

  void compile(const HloCase& c) const {
    const std::string shape = fmt::format("1x1x{}", c.num_replicas);
    const std::vector<abi::NamedValue> options = {text("target_config", target_),
                                                  text("topology", shape)};
    abi::TopologyCreate create;
    constexpr std::string_view kName = "target";
    create.name = kName.data();
    create.name_size = kName.size();
    create.options = options.data();
    create.num_options = options.size();
    plugin_.call(create);
    std::vector<int> ids(static_cast<std::size_t>(c.num_replicas));
    std::iota(ids.begin(), ids.end(), 0);
    const std::string settings = run::pjrt::compile_options(ids, "cuda", cuda_folder_);
    const std::string module = module_of(c, {});
    const abi::Program program = abi::program_of(module);
    abi::CompileForTopology compile;
    compile.topology = create.topology;
    compile.program = &program;
    compile.options = settings.data();
    compile.options_size = settings.size();
    plugin_.call(compile);
    abi::CompiledDestroy destroy;
    destroy.compiled = compile.compiled;
    plugin_.call(destroy);
  }
  std::string version() const { return plugin_.version(); }

 private:
  static abi::NamedValue text(std::string_view name, const std::string& value) {
    abi::NamedValue named;
    named.struct_size = sizeof(named);
    named.name = name.data();
    named.name_size = name.size();
    named.text = value.data();
    named.value_size = value.size();
    return named;
  }

  run::pjrt::Plugin plugin_;
  std::string cuda_folder_;
  std::string target_;
};

int compile_all(const Target& target, const std::vector<HloCase>& cases) {
  int refused = 0;
  const auto start = std::chrono::steady_clock::now();
  for (const HloCase& c : cases) {
    try {
      target.compile(c);
    } catch (const Error& error) {
      ++refused;
      fmt::print("REFUSED {}: {}\n{}\n", c.name, error.what(), c.note);
    }
    std::fflush(stdout);  // the plugin may end the process
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("interface {}: {} programs, {} refused, {:.1f} s\n", target.version(), cases.size(),
             refused, seconds.count());
  return refused > 0 || cases.empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 3) {
    fmt::print(stderr, "usage: pjrt_compile PLUGIN TARGET {}\n", kCaseUsage);
    return 1;
  }
  glob_t found = {};
  const bool has_plugin = glob(arguments[0].c_str(), 0, nullptr, &found) == 0;
  const std::string path = has_plugin ? *found.gl_pathv : "";
  globfree(&found);
  if (!has_plugin) {
    fmt::print("skipped: no PJRT plugin at {}\n", arguments[0]);
    return 77;
  }
  // Without a GPU, the search for the best kernels has nothing to go by, and it takes most of the
  // time.
  setenv("XLA_FLAGS", "--xla_gpu_autotune_level=0", 0);
  std::ifstream file(arguments[1]);
  const std::string target{std::istreambuf_iterator<char>(file), {}};
  int status = 1;
  try {
    status = compile_all(Target(path, target), cases_of({arguments.begin() + 2, arguments.end()}));
  } catch (const Error& error) {
    fmt::print("{}\n", error.what());
  }
  std::fflush(nullptr);
  // Threads of the plugin may still run, and what they use must not be destroyed.
  _exit(status);
}
