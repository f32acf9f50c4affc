// The control groups of Linux (cgroups) that limit this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::run {

/// The folder of a control group, with the kernel's files of one controller.
struct ControlGroup {
  std::string folder;
  int version = 2;  // of the interface: 1 or 2
};

/// The group of this process for a controller, such as `memory`, and the groups above it; a group
/// may lack the controller's files. `root` is prepended to the kernel's paths, for tests.
std::vector<ControlGroup> control_groups(const std::string& controller,
                                         const std::string& root = "");

/// The number that a file begins with; none if the file is missing or begins with a word.
std::optional<std::int64_t> number_in_file(const std::string& path);

}  // namespace tessera::run
