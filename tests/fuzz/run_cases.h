// Shared by the fuzz programs: flags, the loop over seeds, and what to print on a crash.
#pragma once

#include <cstdint>
#include <functional>

namespace tessera::fuzz {

struct RunOptions {
  std::uint64_t seed = 1;
  int cases = 1000;
  double seconds = 1e9;
};

/// Reads --seed S, --cases N and --seconds T. Ends the program with exit code 2 on any other
/// argument.
RunOptions read_options(const char* program, int argc, char** argv, RunOptions defaults);

/// Calls `check(seed)` with S, S + 1, ... until it returns false, N cases ran or T seconds passed.
/// A case that fails, crashes or takes more than `seconds_per_case` ends the run and prints the
/// command that repeats it: `--seed <its seed> --cases 1`. Returns false if a case failed.
bool run_cases(const char* program, const RunOptions& options, unsigned seconds_per_case,
               const std::function<bool(std::uint64_t)>& check);

/// Limits the address space of this process, so that larger allocations fail. No effect under a
/// sanitizer, which reserves more than any useful limit.
void limit_memory(std::uint64_t bytes);

}  // namespace tessera::fuzz
