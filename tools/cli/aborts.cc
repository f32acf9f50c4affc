#include "aborts.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace tessera::cli {

namespace {

std::atomic<const char*> text_before = "";
std::atomic<const char*> text_after = "";

const char* name_of_end(int signal) {
  switch (signal) {
    case SIGABRT:
      return "abort()";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGILL:
      return "SIGILL";
    case SIGSEGV:
      return "SIGSEGV";
    default:
      return "a signal";
  }
}

/// Calls only functions that are allowed in a signal handler.
void end_with_message(int signal) {
  for (const char* text : {text_before.load(), name_of_end(signal), text_after.load()}) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
  }
  std::_Exit(2);
}

}  // namespace

void report_aborts(const char* before, const char* after) {
  text_before = before;
  text_after = after;
  for (const int signal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV}) {
    std::signal(signal, end_with_message);
  }
}

}  // namespace tessera::cli
