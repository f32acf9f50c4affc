#include "run/machine/memory.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#include "run/machine/control_groups.h"

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

/// The file names of the two versions of control groups.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* inactive_files;  // pages of files, which the kernel frees first
  const char* active_files;
};
constexpr GroupFiles kVersion1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                  "total_inactive_file", "total_active_file"};
constexpr GroupFiles kVersion2 = {"/memory.max", "/memory.current", "inactive_file", "active_file"};

void limit_to(const ControlGroup& group, MachineMemory& memory) {
  const GroupFiles& files = group.version == 1 ? kVersion1 : kVersion2;
  const auto limit = number_in_file(group.folder + files.limit);
  const auto used = number_in_file(group.folder + files.used);
  if (!limit || !used) return;
  const std::string statistics = group.folder + "/memory.stat";
  const std::int64_t of_files = number_in(statistics, files.inactive_files).value_or(0) +
                                number_in(statistics, files.active_files).value_or(0);
  memory.total = std::min(memory.total, *limit);
  memory.free = std::min(memory.free, std::max<std::int64_t>(0, *limit - *used + of_files));
}

std::atomic<bool> is_overcommit_allowed{false};

}  // namespace

void set_overcommit(bool is_allowed) { is_overcommit_allowed = is_allowed; }
bool overcommit() { return is_overcommit_allowed; }

std::int64_t machine_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  if (stat("/proc/self/ns/pid", &space) == 0) boot += std::to_string(space.st_ino);
  return static_cast<std::int64_t>(std::hash<std::string>()(boot));
}

MachineMemory machine_memory(const std::string& root) {
  constexpr std::int64_t kKibibyte = 1024;
  const std::string information = root + "/proc/meminfo";
  MachineMemory memory;
  memory.total = number_in(information, "MemTotal:").value_or(0) * kKibibyte;
  if (memory.total == 0)
    memory.total = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  memory.free =
      number_in(information, "MemAvailable:").value_or(memory.total / kKibibyte) * kKibibyte;
  for (const ControlGroup& group : control_groups("memory", root)) limit_to(group, memory);
  return memory;
}

}  // namespace tessera::run
