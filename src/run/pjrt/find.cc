#include "run/pjrt/find.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <glob.h>
#include <sstream>
#include <string_view>

namespace tessera::run::pjrt {

namespace {

/// The environment whose `python3` a shell would run; empty if there is none. Containers often have
/// an environment on PATH that was never activated.
std::string environment_on_path() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::error_code ignored;
    // A link is not followed: in an environment it leads to the system's program.
    const std::filesystem::path program = std::filesystem::path(folder) / "python3";
    if (program.is_absolute() && std::filesystem::exists(program, ignored))
      return program.lexically_normal().parent_path().parent_path();
  }
  return "";
}

}  // namespace

std::vector<std::string> gpu_plugin_patterns() {
  std::vector<std::string> patterns;
  const std::string package = "/jax_plugins/xla_cuda*/xla_cuda_plugin.so";
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* root = std::getenv(variable);
    if (root != nullptr && *root != '\0') {
      patterns.push_back(root + ("/lib/python3*/site-packages" + package));
    }
  }
  if (const std::string root = environment_on_path(); !root.empty()) {
    const std::string pattern = root + "/lib/python3*/site-packages" + package;
    if (std::ranges::find(patterns, pattern) == patterns.end()) patterns.push_back(pattern);
  }
  if (const char* home = std::getenv("HOME")) {
    patterns.push_back(home + ("/.local/lib/python3*/site-packages" + package));
  }
  patterns.push_back("/usr/local/lib/python3*/*-packages" + package);
  patterns.push_back("/usr/lib/python3*/*-packages" + package);
  return patterns;
}

std::optional<std::string> find_gpu_plugin() {
  for (const std::string& pattern : gpu_plugin_patterns()) {
    glob_t found = {};
    const bool has_found = glob(pattern.c_str(), 0, nullptr, &found) == 0 && found.gl_pathc > 0;
    std::string path = has_found ? found.gl_pathv[found.gl_pathc - 1] : "";
    globfree(&found);
    if (has_found) return path;
  }
  return std::nullopt;
}

std::string find_cuda_folder(const std::string& plugin) {
  namespace fs = std::filesystem;
  const char* flags = std::getenv("XLA_FLAGS");
  constexpr std::string_view kFlag = "xla_gpu_cuda_data_dir";
  if (flags != nullptr && std::string_view(flags).find(kFlag) != std::string_view::npos) return "";
  // site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so
  const fs::path packages = fs::path(plugin).parent_path().parent_path().parent_path();
  for (const char* folder : {"nvidia/cu13", "nvidia/cuda_nvcc"}) {
    std::error_code ignored;
    if (fs::exists(packages / folder / "bin" / "ptxas", ignored)) return packages / folder;
  }
  return "";
}

}  // namespace tessera::run::pjrt
