// The memory of this machine that a process may take.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::run {

struct MachineMemory {
  std::int64_t total = 0;  // bytes that processes may take together
  std::int64_t free = 0;   // of these, bytes that are unused or that cache files
};

/// The memory of the machine, reduced to the limits of this process' control groups. `root` is
/// prepended to the paths of the kernel's files, for tests.
MachineMemory machine_memory(const std::string& root = "");

/// A number that the processes of one machine, or container, have in common and no others.
std::int64_t machine_id();

/// Whether buffers may take more memory than is free; false by default.
void set_overcommit(bool is_allowed);
bool overcommit();

/// The bytes that all buffers of this process hold.
std::int64_t buffer_bytes();

}  // namespace tessera::run
