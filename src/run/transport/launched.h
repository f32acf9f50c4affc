// Processes that a launcher such as mpirun has started.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "run/transport/processes.h"

namespace tessera::run {

/// A name and a value, which must be the same in all processes.
using Fact = std::pair<std::string, std::string>;

/// The version of Tessera and a hash of the executable of this process.
std::vector<Fact> facts_of_executable();

struct LaunchOptions {
  int num_groups = 1;  // groups of consecutive ranks; must divide the number of processes
  std::int64_t devices_per_group = 0;  // as in World
  std::chrono::milliseconds timeout{60000};
  std::vector<Fact> facts;
  OnError on_error;
  Span where = {};  // the user's line, for messages
};

/// Whether a launcher has started this process.
bool is_launched();

/// Runs `body` in this process, connected with the others that the launcher has started, and
/// returns 0 or the exit code of the error. If a process fails, the processes that still run are
/// ended, in the worst case without returning from this function. Without a launcher, runs `body`
/// alone.
int run_launched(const LaunchOptions& options, const std::function<void()>& body);

/// A collective: throws UserError, which names a process and what differs, unless all have the same
/// facts.
void agree_on(const std::vector<Fact>& facts, const Span& where);

}  // namespace tessera::run
