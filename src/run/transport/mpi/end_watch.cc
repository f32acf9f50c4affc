#include "run/transport/mpi/end_watch.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tessera::run {

namespace {

using Clock = std::chrono::steady_clock;

/// What the watching process keeps open.
struct Files {
  int pipe = -1;     // a byte comes when the process begins to end
  int process = -1;  // pidfd; readable when the process has ended
  int state = -1;    // its /proc/PID/stat
};

/// Closes the rest, standard input and output included: a launcher reads output until all have
/// closed it.
void close_others(Files& files) {
  const std::array<int*, 3> kept{&files.pipe, &files.process, &files.state};
  constexpr int kFirst = 3;
  for (int* file : kept) *file = fcntl(*file, F_DUPFD, 16);  // out of the way of the next line
  int next = kFirst;
  for (int* file : kept) *file = dup2(*file, next++);
  syscall(SYS_close_range, 0U, 1U, 0U);
  syscall(SYS_close_range, static_cast<unsigned>(next), ~0U, 0U);
}

bool is_stopped(int state) {
  std::array<char, 256> text{};
  const ssize_t size = pread(state, text.data(), text.size(), 0);
  const std::string_view line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  const std::size_t name_end = line.rfind(')');  // the name may contain anything
  return name_end != std::string_view::npos && line.substr(name_end).starts_with(") T");
}

/// Whether the process begins to end; false if it has ended or left the watch.
bool wait_for_begin(const Files& files) {
  std::array<pollfd, 2> events{pollfd{files.pipe, POLLIN, 0}, pollfd{files.process, POLLIN, 0}};
  while (poll(events.data(), events.size(), -1) <= 0) {
  }
  char byte = 0;
  return events[1].revents == 0 && read(files.pipe, &byte, 1) == 1;
}

bool has_ended(const Files& files, int wait_ms) {
  pollfd event{files.process, POLLIN, 0};
  return poll(&event, 1, wait_ms) > 0;
}

[[noreturn]] void watch(Files files, std::chrono::milliseconds timeout,
                        const std::function<void()>& on_stopped) {
  prctl(PR_SET_NAME, "tessera-watch");
  close_others(files);
  if (!wait_for_begin(files)) _exit(0);
  Clock::time_point last_seen = Clock::now();  // running
  while (!has_ended(files, 50)) {
    if (!is_stopped(files.state)) last_seen = Clock::now();
    if (Clock::now() - last_seen < timeout) continue;
    on_stopped();
    syscall(SYS_pidfd_send_signal, files.process, SIGKILL, nullptr, 0U);
    break;
  }
  _exit(0);
}

}  // namespace

EndWatch::EndWatch(std::chrono::milliseconds timeout, const std::function<void()>& on_stopped) {
  std::array<int, 2> ends{-1, -1};
  Files files;
  files.process = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0U));
  files.state = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  const bool can_watch =
      files.process >= 0 && files.state >= 0 && pipe2(ends.data(), O_CLOEXEC) == 0;
  if (can_watch) {
    files.pipe = ends[0];
    pipe_ = ends[1];
    if (fork() == 0) watch(files, timeout, on_stopped);
  }
  for (const int file : {files.process, files.state, files.pipe}) {
    if (file >= 0) close(file);
  }
}

EndWatch::~EndWatch() {
  if (pipe_ >= 0 && !has_begun_) close(pipe_);
}

void EndWatch::begin() {
  if (pipe_ < 0) return;
  has_begun_ = write(pipe_, "e", 1) == 1;
}

}  // namespace tessera::run
