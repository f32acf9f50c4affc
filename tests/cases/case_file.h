// Text files that hold a command, its standard input and its expected output.
//
//   command: tessera-opt --simplify
//   exit: 0
//   stdin:
//   ...                   sections are optional; each ends at the next one
//   stdout:
//   ...
//   stderr:
//   ...
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::testing {

struct CaseFile {
  std::string command;
  int exit_code = -1;
  std::string stdin_text, stdout_text, stderr_text;
};

/// The bytes of a file; empty if it cannot be read.
std::string contents(const std::filesystem::path& path);
/// Files `*.case` below `folder`, sorted.
std::vector<std::filesystem::path> case_files(const std::filesystem::path& folder);
/// Throws std::runtime_error if a line belongs to no section.
CaseFile read_case(const std::filesystem::path& path);
void write_case(const std::filesystem::path& path, const CaseFile& c);

struct CommandOutcome {
  int exit_code = -1;  // -1: ended by a signal
  std::string stdout_text, stderr_text;
};
/// Runs `program` in `folder`. `arguments` are words as in a shell.
CommandOutcome run_command(const std::filesystem::path& program, const std::string& arguments,
                           const std::string& stdin_text, const std::filesystem::path& folder);

/// Whether the environment asks to rewrite the files (TESSERA_UPDATE=1).
bool is_updating();

}  // namespace tessera::testing
