// Runs a program and observes its system calls on the files below a folder. The caller can supply
// the result of a call instead of letting the kernel make it. Linux on x86-64 only.
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
  std::string path;        // absolute path of the file that the call or its descriptor names
  std::string target;      // of rename and link: the new absolute path
  std::int64_t flags = 0;  // of openat
  std::int64_t result = 0;
};

struct TraceOptions {
  std::filesystem::path folder;  // where it runs
  /// Only calls on files below this folder are observed. Default: `folder`.
  std::filesystem::path watched = {};
  /// The result to return instead of making the call, for example -EIO, or 0 for the end of a
  /// folder. nullopt: make the call.
  std::function<std::optional<std::int64_t>(const SystemCall&)> answer = {};
  /// Called after each call that the kernel made.
  std::function<void(const SystemCall&)> seen = {};
  unsigned seconds = 60;  // then SIGALRM ends it
};

struct TraceResult {
  int exit_code = -1;
  int signal = 0;  // the signal that ended it; 0: none
  std::string stdout_text, stderr_text;
};

/// Whether this machine lets processes be traced.
bool can_trace();
TraceResult run_traced(const std::string& program, const std::vector<std::string>& arguments,
                       const TraceOptions& options);

}  // namespace tessera::testing
