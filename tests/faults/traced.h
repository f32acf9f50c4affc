// Runs a program and sees each of its system calls on the files below a folder; calls may be
// answered in the kernel's place. Linux on x86-64 only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::testing {

struct SystemCall {
  std::string_view name;   // "openat"
  int process = 0;         // 0: the program; 1, 2, ...: its children, in the order of their start
  std::string path;        // the file, absolute: by its name, or what the descriptor is open for
  std::string target;      // of rename and link: the new path, absolute
  std::int64_t flags = 0;  // of openat
  std::int64_t result = 0;
};

struct TraceOptions {
  std::filesystem::path folder;  // where it runs
  /// Calls on files below it are seen; the working folder unless set.
  std::filesystem::path watched = {};
  /// The result to give a call instead of making it: -EIO, or 0 for the end of a folder.
  std::function<std::optional<std::int64_t>(const SystemCall&)> answer = {};
  /// After a call that was made.
  std::function<void(const SystemCall&)> seen = {};
  unsigned seconds = 60;  // afterwards it is ended by SIGALRM
};

struct TraceResult {
  int exit_code = -1;
  int signal = 0;  // what ended it; 0: none
  std::string stdout_text, stderr_text;
};

/// Whether this machine lets processes be traced.
bool can_trace();
TraceResult run_traced(const std::string& program, const std::vector<std::string>& arguments,
                       const TraceOptions& options);

}  // namespace tessera::testing
