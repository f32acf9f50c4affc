#include "tests/fuzz/pipeline/child.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::fuzz {

namespace {

constexpr int kThrown = 3;

[[noreturn]] void run_as_child(const std::function<void(int)>& body, int output, unsigned seconds) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL, SIGALRM}) {
    std::signal(signal, SIG_DFL);
  }
  alarm(seconds);
  try {
    body(output);
  } catch (const std::exception& error) {
    write_all(output, error.what());
    _exit(kThrown);
  }
  _exit(0);
}

std::string all_of(int descriptor) {
  std::string bytes;
  std::array<char, 1 << 16> part;
  for (;;) {
    const ssize_t count = read(descriptor, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return bytes;
    bytes.append(part.data(), static_cast<std::size_t>(count));
  }
}

std::string fault_of(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGALRM) return "it does not end";
    return fmt::format("signal {} ({})", signal, strsignal(signal));
  }
  const int code = WEXITSTATUS(status);
  return code == 0 ? "" : code == kThrown ? "it throws" : fmt::format("exit code {}", code);
}

}  // namespace

void write_all(int descriptor, const std::string& bytes) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = write(descriptor, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw std::runtime_error("a pipe cannot be written");
    written += static_cast<std::size_t>(count);
  }
}

ChildResult in_child(const std::function<void(int)>& body, unsigned seconds) {
  std::array<int, 2> ends;
  if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe can be made");
  std::fflush(nullptr);  // else the child would write the buffered text again
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork fails");
  if (child == 0) {
    close(ends[0]);
    run_as_child(body, ends[1], seconds);
  }
  close(ends[1]);
  ChildResult result{.bytes = all_of(ends[0]), .fault = {}};
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.fault = fault_of(status);
  return result;
}

}  // namespace tessera::fuzz
