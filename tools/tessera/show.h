// `tessera show MODEL`: prints how a training step is compiled.
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
  std::vector<std::string> leaves;  // for --what tiles; empty: all
  std::string picture;              // for --what tiles: the file to draw
};

/// Adds --what and the flags that belong to its values; `flags` must outlive the command.
void add_show_flags(Command& command, ShowFlags& flags);
struct JsonFile {
  std::string path;       // empty: no JSON; -: standard output, without the text
  nlohmann::json config;  // of the model and the optimiser
};
/// Both functions compile the step.
struct MemoryPlans {
  std::function<MemoryPlan()> own;      // of the engine
  std::function<MemoryPlan()> of_host;  // what the host engine would plan
};
/// Prints what --what asks for, and writes it as JSON if asked.
void show(const ShowFlags& flags, const JsonFile& json, const LoweredProgram& step,
          const MemoryPlans& memory);

}  // namespace tessera::cli
