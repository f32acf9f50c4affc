// What `tessera show MODEL` prints of a step of training.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <tessera/jit.h>

#include "tools/cli/command.h"

namespace tessera::cli {

struct ShowFlags {
  std::string what = "sharding";
  std::string stage = "partitioned";
  std::vector<std::string> leaves;  // of `tiles`; all
  std::string picture;              // of `tiles`
};

/// Adds --what and the flags of its words; `flags` must outlive the command.
void add_show_flags(Command& command, ShowFlags& flags);
struct JsonFile {
  std::string path;       // empty: none; -: standard output, in place of the text
  nlohmann::json config;  // of the model and the optimiser
};
/// Prints what is asked for, and writes it as JSON as well. `memory` compiles the step.
void show(const ShowFlags& flags, const JsonFile& json, const LoweredProgram& step,
          const std::function<MemoryPlan()>& memory);

}  // namespace tessera::cli
