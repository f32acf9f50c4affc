#include "machine.h"

#include <algorithm>
#include <fstream>

#include <tessera/engine.h>

namespace tessera::cli {

namespace {

/// The value of the first line `KEY...: VALUE` that begins with `key`; empty if there is none.
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

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.processor = value_in("/proc/cpuinfo", "model name");
  if (machine.processor.empty()) machine.processor = "unknown";
  machine.cores = usable_cores();
  const MachineMemory memory = machine_memory();
  machine.memory = memory.total;
  machine.free_memory = memory.free;
  return machine;
}

}  // namespace tessera::cli
