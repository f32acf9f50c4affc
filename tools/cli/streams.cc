#include "streams.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include <tessera/error.h>

#include "stop.h"

namespace tessera::cli {

void open_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // open() takes the lowest free number. This is `stream`, since those below it are open.
    if (open("/dev/null", O_RDWR) != stream) {
      throw RuntimeFault(std::string("cannot open /dev/null: ") + std::strerror(errno));
    }
  }
}

namespace {

[[noreturn]] void fail(int reason) {
  // A process that ignores SIGPIPE gets this error instead.
  if (reason == EPIPE) throw EndedBySignal(SIGPIPE);
  // ferror() may report an earlier error, whose reason is no longer known.
  throw RuntimeFault(std::string("cannot write to standard output") +
                     (reason == 0 ? "" : std::string(": ") + std::strerror(reason)));
}

}  // namespace

void print(const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) < text.size()) fail(errno);
}

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail(errno);
}

}  // namespace tessera::cli
