// Work in a process of its own: whatever becomes of it, the program that asked goes on.
#pragma once

#include <functional>
#include <string>

namespace tessera::fuzz {

struct ChildResult {
  std::string bytes;  // all that was written
  std::string fault;  // how the process ended, if not well
};

/// Calls `body` with a file descriptor to write to. What it throws, a signal and too long a time
/// are faults. The calling process has computed nothing yet, as it could not be forked with
/// threads.
ChildResult in_child(const std::function<void(int)>& body, unsigned seconds);
/// Throws std::runtime_error where that fails.
void write_all(int descriptor, const std::string& bytes);

}  // namespace tessera::fuzz
