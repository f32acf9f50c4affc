#include "aborts.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace tessera::cli {

namespace {

std::atomic<const char*> message_of_aborts = "";

/// Only what may be called in a signal handler.
void end_with_message(int /*signal*/) {
  const char* message = message_of_aborts;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, std::strlen(message));
  std::_Exit(2);
}

}  // namespace

void report_aborts(const char* message) {
  message_of_aborts = message;
  std::signal(SIGABRT, end_with_message);
}

}  // namespace tessera::cli
