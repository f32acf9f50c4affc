// pjrt_cases PLUGIN KIND [SEED [COUNT]]: runs programs in StableHLO on the devices of a PJRT
// plugin, and compares their outputs with those of Tessera's engines. PLUGIN is
// PATH[,OPTION=VALUE]...; a path may have wildcards. The exit status is 77 if there is no such
// file.
//
// Plugins may end their process, so they run in a child. The parent names the program that was
// running.
#include <cstring>
#include <fmt/format.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/error.h>

#include "run/pjrt/client.h"
#include "tests/stablehlo/compare.h"

namespace {

using namespace tessera;           // NOLINT(google-build-using-namespace)
using namespace tessera::testing;  // NOLINT(google-build-using-namespace)

/// What the child process reports to its parent.
struct Progress {
  char client[256] = {};  // platform and versions
  char now[256] = {};     // the program that runs
};

void tell(char (&text)[256], const std::string& what) {
  std::strncpy(text, what.c_str(), sizeof(text) - 1);
}

/// Every device holds its own tile.
std::vector<run::DevicePort> ports_of(const std::vector<Type>& types, std::int64_t num_devices) {
  std::vector<run::DevicePort> ports;
  for (const Type& type : types) {
    run::DevicePort port{.dtype = type.dtype, .room = type.shape, .tiles = {}};
    for (std::int64_t device = 0; device < num_devices; ++device) {
      port.tiles.push_back({.shape = type.shape, .devices = {device}});
    }
    ports.push_back(std::move(port));
  }
  return ports;
}

std::vector<run::Tiles> inputs_of(const HloCase& c) {
  std::vector<run::Tiles> inputs;
  std::size_t at = 0;
  for (const Type& type : c.inputs) {
    run::Tiles tiles;
    for (std::int64_t device = 0; device < c.num_replicas; ++device) {
      tiles.push_back(std::make_shared<run::Buffer>(size_bytes(type)));
      const auto bytes = static_cast<std::size_t>(size_bytes(type));
      if (bytes > 0) std::memcpy(tiles.back()->data(), c.input_bytes.data() + at, bytes);
      at += bytes;
    }
    inputs.push_back(std::move(tiles));
  }
  return inputs;
}

/// What is wrong with the program on these devices.
std::optional<std::string> problem_of(const HloCase& c, run::Backend& backend) {
  const stablehlo::EmitOptions options{.widens_products = backend.platform() == "cpu",
                                       .fuses_attention = backend.has_tensor_cores(),
                                       .pads_products_from = kForCpu.pads_products_from};
  try {
    const auto program = backend.compile({.name = c.name,
                                          .text = module_of(c, options),
                                          .first_device = 0,
                                          .num_devices = c.num_replicas,
                                          .inputs = ports_of(c.inputs, c.num_replicas),
                                          .outputs = ports_of(c.outputs, c.num_replicas),
                                          .is_donated = std::vector<bool>(c.inputs.size(), false)});
    std::vector<run::Tiles> inputs = inputs_of(c);
    std::vector<std::byte> found;
    for (const run::Tiles& tiles : program->execute(inputs, [] {})) {
      for (const run::BufferPtr& tile : tiles) {
        found.insert(found.end(), tile->data(), tile->data() + tile->size());
      }
    }
    return difference(c, found);
  } catch (const Error& error) {
    return fmt::format("refused: {}", error.what());
  }
}

int run_all(const std::string& plugin, const std::vector<std::string>& kind, Progress& progress) {
  run::pjrt::Client& client = run::pjrt::client_of(run::pjrt::parse_spec(plugin, {}), {});
  const run::BackendInfo info = client.info();
  tell(progress.client, fmt::format("platform {}, {}, interface {}", client.platform(),
                                    info.platform_version, info.interface_version));
  fmt::print("{}\n", static_cast<const char*>(progress.client));
  std::vector<HloCase> cases = cases_of(kind);
  const auto num_devices = static_cast<std::int64_t>(info.devices.size());
  const std::size_t num_left_out =
      std::erase_if(cases, [&](const HloCase& c) { return c.num_replicas > num_devices; });
  int failed = 0;
  for (const HloCase& c : cases) {
    tell(progress.now, c.name);
    if (const std::optional<std::string> problem = problem_of(c, client)) {
      ++failed;
      fmt::print("FAILED {}: {}\n{}\n", c.name, *problem, c.note);
    }
  }
  fmt::print("{} programs, {} failed\n", cases.size(), failed);
  if (num_left_out > 0) {
    fmt::print("{} programs left out: too few devices ({})\n", num_left_out, num_devices);
  }
  return failed > 0 || cases.empty() ? 1 : 0;
}

int run_in_child(const std::string& plugin, const std::vector<std::string>& kind) {
  void* const shared =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  auto& progress = *new (shared) Progress;
  const pid_t child = fork();
  if (child == 0) {
    int status = 1;
    try {
      status = run_all(plugin, kind, progress);
    } catch (const Error& error) {
      fmt::print("{}\n", error.what());
    }
    std::fflush(nullptr);
    // Threads of the plugin may still run, and what they use must not be destroyed.
    _exit(status);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 1;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  fmt::print("the plugin ({}) ended its process with signal {} at: {}\n",
             static_cast<const char*>(progress.client), WTERMSIG(status),
             static_cast<const char*>(progress.now));
  return 1;
}

/// The first file that fits the pattern; empty if there is none.
std::string find(const std::string& pattern) {
  glob_t found = {};
  std::string path;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) path = *found.gl_pathv;
  globfree(&found);
  return path;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) {
    fmt::print(stderr, "usage: pjrt_cases PATH[,OPTION=VALUE]... {}\n", kCaseUsage);
    return 1;
  }
  const std::size_t comma = std::min(arguments[0].find(','), arguments[0].size());
  const std::string path = find(arguments[0].substr(0, comma));
  if (path.empty()) {
    fmt::print("skipped: no PJRT plugin at {}; ./check --all installs one\n", arguments[0]);
    return 77;
  }
  return run_in_child(path + arguments[0].substr(comma), {arguments.begin() + 1, arguments.end()});
}
