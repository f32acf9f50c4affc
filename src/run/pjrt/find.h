// Where Python's package managers put the plugin for NVIDIA GPUs and its tools.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tessera::run::pjrt {

/// The patterns of paths that are searched, in this order: those of the active environment
/// ($VIRTUAL_ENV, $CONDA_PREFIX), of the `python3` on PATH, of the user and of the system.
std::vector<std::string> gpu_plugin_patterns();
/// The newest plugin of the first pattern that matches.
std::optional<std::string> find_gpu_plugin();
/// The folder with CUDA's assembler and libraries next to the package of this plugin. Empty if
/// there is none, or if XLA_FLAGS names one.
std::string find_cuda_folder(const std::string& plugin);

}  // namespace tessera::run::pjrt
