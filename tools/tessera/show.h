// What `tessera show MODEL` prints of a step of training.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include <tessera/jit.h>

namespace tessera::cli {

struct ShowFlags {
  std::string what = "sharding";
  std::string stage = "partitioned";
  std::vector<std::string> leaves;  // of `tiles`; all
  std::string picture;              // of `tiles`
};

/// Adds --what and the flags of its words; `flags` must outlive the command.
void add_show_flags(CLI::App& command, ShowFlags& flags);
/// Prints what is asked for, and writes it as JSON to `json` unless that is empty; for `-` the JSON
/// takes the place of the text. `memory` compiles the step.
void show(const ShowFlags& flags, const std::string& json, const LoweredProgram& step,
          const std::function<MemoryPlan()>& memory);

}  // namespace tessera::cli
