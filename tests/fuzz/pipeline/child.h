// Runs work in a child process, so that the program goes on whatever happens to it.
#pragma once

#include <functional>
#include <string>

namespace tessera::fuzz {

struct ChildResult {
  std::string bytes;  // all that the body wrote
  std::string fault;  // how the process failed; empty if it did not
};

/// Calls `body` in a child process, with a file descriptor to write to. An exception, a signal and
/// a run of more than `seconds` are faults. The calling process must not have computed anything
/// before, because it could not fork while the engine's threads exist.
ChildResult in_child(const std::function<void(int)>& body, unsigned seconds);
/// Throws std::runtime_error if the write fails.
void write_all(int descriptor, const std::string& bytes);

}  // namespace tessera::fuzz
