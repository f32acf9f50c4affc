#include "run/machine/control_groups.h"

#include <fstream>

namespace tessera::run {

namespace {

/// In a container, the path may begin outside the mounted folder. Then the mounted folder itself is
/// the group, so it is always listed.
void add_groups(std::vector<ControlGroup>& groups, const std::string& mount, std::string path,
                int version) {
  while (!path.empty()) {
    groups.push_back({.folder = mount + path, .version = version});
    path.resize(path.rfind('/'));
  }
  groups.push_back({.folder = mount, .version = version});
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root) {
  constexpr const char* kMount = "/sys/fs/cgroup";
  std::vector<ControlGroup> groups;
  // Lines are `number:controllers:path`; those of version 2 are `0::path`.
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (!path.empty() && path[0] != '/') continue;
    if (controllers == ",,") add_groups(groups, root + kMount, path, 2);
    if (controllers.find("," + controller + ",") != std::string::npos) {
      add_groups(groups, root + kMount + "/" + controller, path, 1);
    }
  }
  return groups;
}

std::optional<std::int64_t> number_in_file(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

}  // namespace tessera::run
