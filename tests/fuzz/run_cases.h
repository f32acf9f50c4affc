// What the fuzz programs share: flags, the loop over seeds, and what a crash prints.
#pragma once

#include <cstdint>
#include <functional>

namespace tessera::fuzz {

struct RunOptions {
  std::uint64_t seed = 1;
  int cases = 1000;
  double seconds = 1e9;
};

/// Reads --seed S, --cases N and --seconds T; ends the program with 2 for anything else.
RunOptions read_options(const char* program, int argc, char** argv, RunOptions defaults);

/// Calls `check(seed)` with S, S + 1, ... until it returns false, N times or for T seconds.
/// `--seed <its seed> --cases 1` repeats one case; a crash, or a case of more than
/// `seconds_per_case`, prints how. False: a case failed.
bool run_cases(const char* program, const RunOptions& options, unsigned seconds_per_case,
               const std::function<bool(std::uint64_t)>& check);

/// Lets allocations beyond fail. Without effect under a sanitizer, which reserves more than that.
void limit_memory(std::uint64_t bytes);

}  // namespace tessera::fuzz
