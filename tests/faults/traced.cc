#include "tests/faults/traced.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/limits.h>
#include <linux/seccomp.h>
#include <map>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cases/case_file.h"

namespace tessera::testing {

namespace {

namespace fs = std::filesystem;

/// Where the arguments of a call name its file.
enum class Names : std::uint8_t { path, at, descriptor, two_paths, two_at };

struct Watched {
  long number;
  std::string_view name;
  Names names;
};

constexpr std::array kWatched = {
    Watched{SYS_close, "close", Names::descriptor},
    Watched{SYS_fdatasync, "fdatasync", Names::descriptor},
    Watched{SYS_flock, "flock", Names::descriptor},
    Watched{SYS_fstat, "fstat", Names::descriptor},
    Watched{SYS_fsync, "fsync", Names::descriptor},
    Watched{SYS_ftruncate, "ftruncate", Names::descriptor},
    Watched{SYS_getdents64, "getdents64", Names::descriptor},
    Watched{SYS_lstat, "lstat", Names::path},
    Watched{SYS_mkdir, "mkdir", Names::path},
    Watched{SYS_mkdirat, "mkdirat", Names::at},
    Watched{SYS_newfstatat, "newfstatat", Names::at},
    Watched{SYS_open, "open", Names::path},
    Watched{SYS_openat, "openat", Names::at},
    Watched{SYS_pread64, "pread64", Names::descriptor},
    Watched{SYS_pwrite64, "pwrite64", Names::descriptor},
    Watched{SYS_read, "read", Names::descriptor},
    Watched{SYS_rename, "rename", Names::two_paths},
    Watched{SYS_renameat, "renameat", Names::two_at},
    Watched{SYS_renameat2, "renameat2", Names::two_at},
    Watched{SYS_rmdir, "rmdir", Names::path},
    Watched{SYS_stat, "stat", Names::path},
    Watched{SYS_statx, "statx", Names::at},
    Watched{SYS_unlink, "unlink", Names::path},
    Watched{SYS_unlinkat, "unlinkat", Names::at},
    Watched{SYS_write, "write", Names::descriptor},
    Watched{SYS_writev, "writev", Names::descriptor},
};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("run_traced: " + what + " fails");
}

/// Installs a seccomp filter that stops at the calls of the table and at no others.
bool watch_calls() {
  std::vector<sock_filter> program;
  const auto code = [](unsigned value) { return static_cast<std::uint16_t>(value); };
  program.push_back({code(BPF_LD | BPF_W | BPF_ABS), 0, 0, offsetof(seccomp_data, nr)});
  for (std::size_t i = 0; i < kWatched.size(); ++i) {
    const auto to_trace = static_cast<std::uint8_t>(kWatched.size() - i);
    program.push_back({code(BPF_JMP | BPF_JEQ | BPF_K), to_trace, 0,
                       static_cast<std::uint32_t>(kWatched[i].number)});
  }
  program.push_back({code(BPF_RET | BPF_K), 0, 0, SECCOMP_RET_ALLOW});
  program.push_back({code(BPF_RET | BPF_K), 0, 0, SECCOMP_RET_TRACE});
  const sock_fprog filter{static_cast<std::uint16_t>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

void redirect(int descriptor, const fs::path& path, int flags) {
  const int file = open(path.c_str(), flags, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(127);
  close(file);
}

[[noreturn]] void become(const std::string& program, const std::vector<std::string>& arguments,
                         const TraceOptions& options, const fs::path& streams) {
  redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  redirect(STDOUT_FILENO, streams.string() + ".out", O_WRONLY | O_CREAT | O_TRUNC);
  redirect(STDERR_FILENO, streams.string() + ".err", O_WRONLY | O_CREAT | O_TRUNC);
  if (chdir(options.folder.c_str()) != 0) _exit(127);
  // LeakSanitizer would trace this process too, but a process can have only one tracer.
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  std::signal(SIGALRM, SIG_DFL);
  alarm(options.seconds);
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(126);
  std::raise(SIGSTOP);
  if (!watch_calls()) _exit(126);
  execv(program.c_str(), words.data());
  _exit(127);
}

std::string link_target(const std::string& link) {
  std::array<char, PATH_MAX> text;
  const ssize_t size = readlink(link.c_str(), text.data(), text.size());
  return size < 0 ? std::string() : std::string(text.data(), static_cast<std::size_t>(size));
}

/// The text at an address of a stopped process.
std::string text_at(pid_t pid, std::uint64_t address) {
  std::string text;
  std::array<char, 256> block;
  while (text.size() < PATH_MAX) {
    // Do not read past the end of a page: the next page may not be mapped.
    const std::size_t size = std::min(block.size(), 4096 - address % 4096);
    iovec to{block.data(), size};
    iovec from{reinterpret_cast<void*>(address), size};
    if (process_vm_readv(pid, &to, 1, &from, 1, 0) != static_cast<ssize_t>(size)) return text;
    const auto end = std::find(block.begin(), block.begin() + size, '\0');
    text.append(block.begin(), end);
    if (end != block.begin() + size) return text;
    address += size;
  }
  return text;
}

class Tracer {
 public:
  Tracer(pid_t program, const TraceOptions& options)
      : program_(program),
        options_(options),
        watched_(fs::canonical(options.watched.empty() ? options.folder : options.watched)) {
    processes_[program] = 0;
  }

  int run() {
    int status = 0;
    if (waitpid(program_, &status, 0) != program_ || !WIFSTOPPED(status)) fail("PTRACE_TRACEME");
    constexpr long kOptions = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC |
                              PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                              PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, program_, 0, kOptions) != 0) fail("PTRACE_SETOPTIONS");
    go_on(program_, PTRACE_CONT, 0);
    int result = 0;
    while (true) {
      const pid_t pid = waitpid(-1, &status, __WALL);
      if (pid < 0 && errno == EINTR) continue;
      if (pid < 0) return result;  // all have ended
      if (WIFEXITED(status) || WIFSIGNALED(status)) {
        if (pid == program_) result = status;
        processes_.erase(pid);
        pending_.erase(pid);
        continue;
      }
      stopped(pid, status);
    }
  }

 private:
  static void go_on(pid_t pid, int request, int signal) {
    // This fails for a process that has been killed meanwhile, which does no harm.
    ptrace(static_cast<__ptrace_request>(request), pid, 0, signal);
  }

  void stopped(pid_t pid, int status) {
    const int signal = WSTOPSIG(status);
    const int event = status >> 16;
    if (!processes_.contains(pid)) {
      // A child stops once at its start, maybe before its parent has reported it.
      early_.insert({pid, 0});
      return;
    }
    if (signal == (SIGTRAP | 0x80)) return made(pid);
    if (event == PTRACE_EVENT_SECCOMP) return called(pid);
    if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK)
      return born(pid, event);
    if (event != 0) return go_on(pid, PTRACE_CONT, 0);
    const bool is_start = signal == SIGSTOP && fresh_.erase(pid) > 0;
    go_on(pid, PTRACE_CONT, is_start ? 0 : signal);
  }

  void born(pid_t parent, int event) {
    unsigned long message = 0;
    ptrace(PTRACE_GETEVENTMSG, parent, 0, &message);
    const auto child = static_cast<pid_t>(message);
    const bool is_thread =
        event == PTRACE_EVENT_CLONE &&
        fs::exists("/proc/" + std::to_string(parent) + "/task/" + std::to_string(child));
    processes_[child] = is_thread ? processes_[parent] : ++count_;
    if (early_.erase(child) > 0) {
      go_on(child, PTRACE_CONT, 0);
    } else {
      fresh_[child] = 0;
    }
    go_on(parent, PTRACE_CONT, 0);
  }

  /// Before a call of the table.
  void called(pid_t pid) {
    user_regs_struct registers{};
    if (ptrace(PTRACE_GETREGS, pid, 0, &registers) != 0) return;
    const auto number = static_cast<long>(registers.orig_rax);
    const auto watched = std::find_if(kWatched.begin(), kWatched.end(),
                                      [&](const Watched& w) { return w.number == number; });
    if (watched == kWatched.end()) return go_on(pid, PTRACE_CONT, 0);
    SystemCall call = call_of(pid, *watched, registers);
    if (!is_below(call.path) && !is_below(call.target)) return go_on(pid, PTRACE_CONT, 0);
    const std::optional<std::int64_t> answer =
        options_.answer ? options_.answer(call) : std::nullopt;
    if (answer) {
      registers.orig_rax = static_cast<unsigned long long>(-1);
      registers.rax = static_cast<unsigned long long>(*answer);
      ptrace(PTRACE_SETREGS, pid, 0, &registers);
      return go_on(pid, PTRACE_CONT, 0);
    }
    if (!options_.seen) return go_on(pid, PTRACE_CONT, 0);
    pending_[pid] = std::move(call);
    go_on(pid, PTRACE_SYSCALL, 0);
  }

  /// After a call of the table.
  void made(pid_t pid) {
    user_regs_struct registers{};
    const auto call = pending_.find(pid);
    if (call != pending_.end() && ptrace(PTRACE_GETREGS, pid, 0, &registers) == 0) {
      call->second.result = static_cast<std::int64_t>(registers.rax);
      options_.seen(call->second);
      pending_.erase(call);
    }
    go_on(pid, PTRACE_CONT, 0);
  }

  SystemCall call_of(pid_t pid, const Watched& watched, const user_regs_struct& registers) const {
    SystemCall call{.name = watched.name, .process = processes_.at(pid), .path = {}, .target = {}};
    const std::string proc = "/proc/" + std::to_string(pid);
    const auto open_for = [&](std::uint64_t descriptor) {
      const int number = static_cast<int>(descriptor);
      return number == AT_FDCWD ? link_target(proc + "/cwd")
                                : link_target(proc + "/fd/" + std::to_string(number));
    };
    const auto below = [&](const std::string& folder, std::uint64_t address) {
      const std::string name = text_at(pid, address);
      return (fs::path(folder) / name).lexically_normal().string();
    };
    const std::string cwd = link_target(proc + "/cwd");
    switch (watched.names) {
      case Names::descriptor:
        call.path = open_for(registers.rdi);
        break;
      case Names::path:
        call.path = below(cwd, registers.rdi);
        break;
      case Names::two_paths:
        call.path = below(cwd, registers.rdi);
        call.target = below(cwd, registers.rsi);
        break;
      case Names::at:
        call.path = below(open_for(registers.rdi), registers.rsi);
        call.flags = static_cast<std::int64_t>(registers.rdx);
        break;
      case Names::two_at:
        call.path = below(open_for(registers.rdi), registers.rsi);
        call.target = below(open_for(registers.rdx), registers.r10);
        break;
    }
    // A trailing slash, or the empty name of a call on a descriptor, leaves a slash at the end.
    while (call.path.size() > 1 && call.path.back() == '/') call.path.pop_back();
    return call;
  }

  bool is_below(const std::string& path) const {
    return path == watched_ || path.starts_with(watched_ + "/");
  }

  pid_t program_;
  const TraceOptions& options_;
  std::string watched_;
  std::map<pid_t, int> processes_;  // of each thread, too: its process
  std::map<pid_t, int> early_;      // children that stopped before their parent reported them
  std::map<pid_t, int> fresh_;      // children that were reported and have not stopped yet
  std::map<pid_t, SystemCall> pending_;
  int count_ = 0;
};

}  // namespace

bool can_trace() {
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) _exit(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 && watch_calls() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  // Without a tracer the filtered calls fail, so the child may also end by a signal.
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TraceResult run_traced(const std::string& program, const std::vector<std::string>& arguments,
                       const TraceOptions& options) {
  const fs::path streams =
      fs::temp_directory_path() / ("tessera_traced." + std::to_string(getpid()));
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) become(program, arguments, options, streams);
  const int status = Tracer(child, options).run();
  TraceResult result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.stdout_text = contents(streams.string() + ".out");
  result.stderr_text = contents(streams.string() + ".err");
  fs::remove(streams.string() + ".out");
  fs::remove(streams.string() + ".err");
  return result;
}

}  // namespace tessera::testing
