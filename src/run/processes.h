// One process per device: making them, and what each knows of the others.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "run/transport.h"

namespace tessera::run {

/// How this process reaches the others; nullptr while it computes for all devices.
Transport* transport();

/// The devices of each of the groups that the processes are; all of them without groups, 1 without
/// processes.
int devices_per_group();

struct ProcessOptions {
  int count = 1;
  int num_groups = 1;  // that the processes are, one after the other; it divides `count`
  std::chrono::milliseconds timeout{60000};
  /// Reports an error of a process, in that process, and says with which code it exits. Those that
  /// were ended from outside are reported in the calling one.
  std::function<int(const std::exception_ptr&)> on_error;
  Span where = {};  // the user's line, for messages
};

/// Runs `body` in `count` new processes that are connected by a transport; returns when all have
/// ended: 0, or the code of one that failed. Those that do not end within the timeout after one
/// has failed are killed. Throws UserError when this process has started threads, RuntimeFault
/// when the machine has no room for the processes.
int run_processes(const ProcessOptions& options, const std::function<void()>& body);

/// What every process passes here, by rank; a collective.
std::vector<std::int64_t> all_values(std::int64_t value, const CollectiveLabel& label);
std::vector<std::string> all_texts(const std::string& text, const CollectiveLabel& label);

}  // namespace tessera::run
