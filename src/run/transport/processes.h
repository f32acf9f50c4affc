// Starts processes that own the devices of a mesh, and exchanges values between them.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "run/transport/transport.h"
#include "run/world.h"

namespace tessera::run {

/// The transport of world().
Transport* transport();

/// The number of processes, this one included, that may use the same cores.
int num_sharing_cores();

/// Returns the exit code of an error, and reports the error if `is_reporter`; otherwise another
/// process reports its cause.
using OnError = std::function<int(const std::exception_ptr& error, bool is_reporter)>;

/// The text of an exception, for the other processes.
std::string text_of_error(const std::exception_ptr& error);

/// Calls `on_error` and returns the exit code. If that throws, maybe because it can only report a
/// std::exception, calls it once more with a RuntimeFault that has the text of what was thrown.
int report_error(const OnError& on_error, const std::exception_ptr& error, bool is_reporter);

struct ProcessOptions {
  int count = 1;
  int num_groups = 1;  // groups of consecutive ranks; divides `count`
  int devices_per_process = 1;
  std::chrono::milliseconds timeout{60000};
  OnError on_error;
  Span where = {};  // the user's line, for messages
};

/// Runs `body` in `count` new processes that are connected by a transport. Returns when all have
/// ended: 0, or the exit code of one that failed. After a failure, processes that do not end within
/// the timeout are killed. Throws UserError if this process has started threads or may not open
/// enough sockets, RuntimeFault if the machine cannot start the processes.
int run_processes(const ProcessOptions& options, const std::function<void()>& body);

/// Collectives: return what every process has passed, by rank.
std::vector<std::int64_t> all_values(std::int64_t value, const CollectiveLabel& label);
std::vector<std::string> all_texts(const std::string& text, const CollectiveLabel& label);

}  // namespace tessera::run
