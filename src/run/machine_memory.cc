#include "run/machine_memory.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <optional>
#include <sstream>
#include <unistd.h>

namespace tessera::run {

namespace {

/// The number after the word `key` in the first line that begins with it.
std::optional<std::int64_t> number_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::int64_t number = 0;
    if (words >> word >> number && word == key) return number;
  }
  return std::nullopt;
}

/// The number that a file holds; none where it is missing or holds a word, such as `max`.
std::optional<std::int64_t> number_of(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

/// The file names of the two versions of control groups.
struct GroupFiles {
  const char* folder;
  const char* limit;
  const char* used;
  const char* inactive_files;  // pages of files, which the kernel frees first
  const char* active_files;
};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_inactive_file",
                                  "total_active_file"};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file",
                                  "active_file"};

void limit_to_group(MachineMemory& memory, const std::string& folder, const GroupFiles& files) {
  const auto limit = number_of(folder + "/" + files.limit);
  const auto used = number_of(folder + "/" + files.used);
  if (!limit || !used) return;
  const std::string statistics = folder + "/memory.stat";
  const std::int64_t of_files = number_in(statistics, files.inactive_files).value_or(0) +
                                number_in(statistics, files.active_files).value_or(0);
  memory.total = std::min(memory.total, *limit);
  memory.free = std::min(memory.free, std::max<std::int64_t>(0, *limit - *used + of_files));
}

/// Applies the limits of the group and of all groups above it. In a container the path may begin
/// outside of what is mounted; then the mounted folder itself is the group.
void limit_to_groups(MachineMemory& memory, const std::string& root, std::string path,
                     const GroupFiles& files) {
  while (!path.empty()) {
    limit_to_group(memory, root + files.folder + path, files);
    path.resize(path.rfind('/'));
  }
  limit_to_group(memory, root + files.folder, files);
}

std::atomic<bool> is_overcommit_allowed{false};

}  // namespace

void set_overcommit(bool is_allowed) { is_overcommit_allowed = is_allowed; }
bool overcommit() { return is_overcommit_allowed; }

MachineMemory machine_memory(const std::string& root) {
  constexpr std::int64_t kKibibyte = 1024;
  const std::string information = root + "/proc/meminfo";
  MachineMemory memory;
  memory.total = number_in(information, "MemTotal:").value_or(0) * kKibibyte;
  if (memory.total == 0)
    memory.total = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  memory.free =
      number_in(information, "MemAvailable:").value_or(memory.total / kKibibyte) * kKibibyte;
  // Lines are `number:controllers:path`; those of version 2 are `0::path`.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (!path.empty() && path[0] != '/') continue;
    if (controllers == ",,") limit_to_groups(memory, root, path, kVersion2);
    if (controllers.find(",memory,") != std::string::npos)
      limit_to_groups(memory, root, path, kVersion1);
  }
  return memory;
}

}  // namespace tessera::run
