// Runs a program with given arguments, limited in time and memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::fuzz {

struct SpawnOptions {
  std::string stdin_text = {};
  std::vector<std::string> environment = {};  // NAME=VALUE, besides that of this program
  std::filesystem::path folder;  // working folder; also holds the output while the program runs
  unsigned seconds = 60;
  std::uint64_t memory = std::uint64_t{1} << 30;  // bytes of address space
};

struct SpawnResult {
  int exit_code = -1;
  int signal = 0;  // the signal that ended it; 0: none, SIGALRM: time ran out
  std::string stdout_text, stderr_text;
};

SpawnResult spawn(const std::string& program, const std::vector<std::string>& arguments,
                  const SpawnOptions& options);

}  // namespace tessera::fuzz
