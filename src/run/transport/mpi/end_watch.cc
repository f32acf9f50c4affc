#include "run/transport/mpi/end_watch.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "run/machine/clock.h"

namespace tessera::run {

namespace {

constexpr int kError = 2;  // the descriptor of standard error

/// What the watching process keeps open.
struct Files {
  int word = -1;      // eventfd: how the process ends
  int process = -1;   // pidfd; readable when the process has ended
  int state = -1;     // its /proc/PID/stat
  int launcher = -1;  // pidfd of its parent, if that is mpirun
  int children = -1;  // of the launcher: /proc/PID/task/PID/children

  std::array<int*, 5> all() { return {&word, &process, &state, &launcher, &children}; }
};

int pidfd_of(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0U)); }

std::string proc_file(pid_t pid, std::string_view name) {
  return "/proc/" + std::to_string(pid) + "/" + std::string(name);
}

int open_proc_file(pid_t pid, std::string_view name) {
  return open(proc_file(pid, name).c_str(), O_RDONLY | O_CLOEXEC);
}

/// The current text of a file of /proc.
std::string text_of(int file) {
  std::array<char, 4096> text{};
  const ssize_t size = pread(file, text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

std::string text_of_closed(pid_t pid, std::string_view name) {
  const int file = open_proc_file(pid, name);
  if (file < 0) return "";
  std::string text = text_of(file);
  close(file);
  return text;
}

/// The letter in /proc/PID/stat; 0 if there is no such process.
char state_in(std::string_view stat) {
  const std::size_t name_end = stat.rfind(") ");  // the name may contain anything
  return name_end == std::string_view::npos ? '\0' : stat[name_end + 2];
}

bool is_mpirun(pid_t pid) {
  const std::string name = text_of_closed(pid, "comm");
  return name.starts_with("mpirun") || name.starts_with("mpiexec") || name.starts_with("orterun");
}

void open_launcher(Files& files) {
  const pid_t parent = getppid();
  if (!is_mpirun(parent)) return;
  files.launcher = pidfd_of(parent);
  files.children = open_proc_file(parent, "task/" + std::to_string(parent) + "/children");
}

/// Closes the rest, standard input and output included: a launcher reads output until all have
/// closed it.
void close_others(Files& files) {
  constexpr int kFirst = 3;
  // First moves them away from the numbers that they get next.
  for (int* file : files.all()) *file = fcntl(*file, F_DUPFD, 16);
  int next = kFirst;
  for (int* file : files.all()) {
    if (*file >= 0) *file = dup2(*file, next++);
  }
  syscall(SYS_close_range, 0U, 1U, 0U);
  syscall(SYS_close_range, static_cast<unsigned>(next), ~0U, 0U);
}

/// How the process ends; it writes this before.
enum class End : std::uint64_t { has_come = 0, begins = 1, is_not_watched = 2 };

End wait_for_end(const Files& files) {
  std::array<pollfd, 2> events{pollfd{files.word, POLLIN, 0}, pollfd{files.process, POLLIN, 0}};
  while (poll(events.data(), events.size(), -1) <= 0) {
  }
  // What it has written counts even if it has ended since.
  auto end = End::has_come;
  if (events[0].revents == 0 || read(files.word, &end, sizeof(end)) != sizeof(end)) {
    return End::has_come;
  }
  return end;
}

bool has_ended(int pidfd, int wait_ms) {
  pollfd event{pidfd, POLLIN, 0};
  return poll(&event, 1, wait_ms) > 0;
}

void watch_process(const Files& files, const EndWatch::Limit& limit) {
  Clock::time_point last_seen = Clock::now();  // running
  while (!has_ended(files.process, 50)) {
    if (state_in(text_of(files.state)) != 'T') last_seen = Clock::now();
    if (Clock::now() - last_seen < limit.time) continue;
    limit.report();
    syscall(SYS_pidfd_send_signal, files.process, SIGKILL, nullptr, 0U);
    return;
  }
}

/// Whether one of the launcher's processes runs. A process that has ended is still listed until it
/// is waited for.
bool has_children(const Files& files) {
  std::istringstream pids(text_of(files.children));
  for (pid_t pid = 0; pids >> pid;) {
    const char state = state_in(text_of_closed(pid, "stat"));
    if (state != '\0' && state != 'Z') return true;
  }
  return false;
}

void watch_launcher(const Files& files, pid_t launcher, const EndWatch::Limit& limit) {
  if (files.launcher < 0 || files.children < 0) return;
  close(kError);                               // it belongs to the process that has ended
  Clock::time_point last_seen = Clock::now();  // with a process
  while (!has_ended(files.launcher, 50)) {
    if (has_children(files)) last_seen = Clock::now();
    if (Clock::now() - last_seen < limit.time) continue;
    // This gets the lowest free number, which is that of standard error.
    const int error = open(proc_file(launcher, "fd/2").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (error >= 0) dup2(error, kError);
    limit.report();
    syscall(SYS_pidfd_send_signal, files.launcher, SIGKILL, nullptr, 0U);
    return;
  }
}

[[noreturn]] void watch(Files files, pid_t launcher, const EndWatch::Limit& stopped,
                        const EndWatch::Limit& idle_launcher) {
  prctl(PR_SET_NAME, "tessera-watch");
  setpgid(0, 0);  // mpirun kills the groups of its processes
  close_others(files);
  const End end = wait_for_end(files);
  if (end == End::begins) watch_process(files, stopped);
  if (end == End::has_come) watch_launcher(files, launcher, idle_launcher);
  _exit(0);
}

}  // namespace

EndWatch::EndWatch(const Limit& stopped, const Limit& idle_launcher) {
  Files files;
  files.process = pidfd_of(getpid());
  files.state = open_proc_file(getpid(), "stat");
  files.word = eventfd(0, EFD_CLOEXEC);
  open_launcher(files);
  const bool can_watch = files.process >= 0 && files.state >= 0 && files.word >= 0;
  if (can_watch) {
    word_ = fcntl(files.word, F_DUPFD_CLOEXEC, 0);
    const pid_t launcher = getppid();
    if (fork() == 0) watch(files, launcher, stopped, idle_launcher);
  }
  for (const int* file : files.all()) {
    if (*file >= 0) close(*file);
  }
}

EndWatch::~EndWatch() {
  if (!has_begun_) say(static_cast<std::uint64_t>(End::is_not_watched));
  if (word_ >= 0) close(word_);
}

void EndWatch::begin() {
  say(static_cast<std::uint64_t>(End::begins));
  has_begun_ = true;
}

void EndWatch::say(std::uint64_t end) const {
  if (word_ < 0) return;
  [[maybe_unused]] const ssize_t written = write(word_, &end, sizeof(end));
}

}  // namespace tessera::run
