// The memory of this machine that a process may take.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::run {

struct MachineMemory {
  std::int64_t total = 0;  // bytes that processes may take together
  std::int64_t free = 0;   // of those that are not taken, or hold files that can be read again
};

/// What the machine has and what the limits of this process' control groups leave of it. `root` is
/// put before the paths of the kernel's files, for tests.
MachineMemory machine_memory(const std::string& root = "");

/// Whether more may be taken than is free; at first it may not.
void set_overcommit(bool is_allowed);
bool overcommit();

}  // namespace tessera::run
