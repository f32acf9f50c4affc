#include "machine.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>
#include <unistd.h>

namespace tessera::cli {

namespace {

/// What follows the first ": " of the first line that begins with `key`.
std::string value_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const std::size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return {};
}

/// Numbers of files of the kernel; `none` for what is not one, as `max`.
std::int64_t number_in(const std::string& path, std::int64_t none) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? number : none;
}

std::int64_t kibibytes_in(const std::string& text) {
  std::int64_t kibibytes = 0;
  std::istringstream(text) >> kibibytes;
  return kibibytes << 10;
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.processor = value_in("/proc/cpuinfo", "model name");
  if (machine.processor.empty()) machine.processor = "unknown";
  machine.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const std::int64_t physical =
      static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  // A container may have less than its machine.
  const std::string group = "/sys/fs/cgroup/";
  const std::int64_t limit = number_in(group + "memory.max", physical);
  machine.memory = std::min(physical, limit);
  machine.free_memory =
      std::min(kibibytes_in(value_in("/proc/meminfo", "MemAvailable")),
               machine.memory - (limit < physical ? number_in(group + "memory.current", 0) : 0));
  return machine;
}

}  // namespace tessera::cli
