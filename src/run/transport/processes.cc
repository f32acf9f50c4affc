#include "run/transport/processes.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <tessera/error.h>

#include "run/engine.h"
#include "run/transport/current.h"
#include "run/transport/link_transport.h"
#include "run/transport/running_time.h"
#include "run/transport/socket_link.h"

namespace tessera::run {

namespace {

int sharing_cores = 1;

[[noreturn]] void fail(const char* call) {
  throw RuntimeFault(
      fmt::format("cannot start a process per device: {}: {}", call, std::strerror(errno)));
}

/// A mailbox per process, and a connected pair of sockets for every two processes. make() opens
/// the pairs between a rank and the later ones, before that rank is forked. take() hands over the
/// files of one rank; the destructor closes the rest.
class Sockets {
 public:
  explicit Sockets(const ProcessOptions& options)
      : of_(of_size(options), std::vector<int>(of_size(options), -1)),
        readers_(of_size(options), -1),
        writers_(of_size(options), -1) {
    raise_limit(options);
    for (std::size_t rank = 0; rank < of_.size(); ++rank) {
      int pair[2];
      open_pair(SOCK_SEQPACKET, pair);
      readers_[rank] = pair[0];
      writers_[rank] = pair[1];
    }
  }
  ~Sockets() { close_all(); }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  void make(int rank) {
    const auto a = static_cast<std::size_t>(rank);
    for (std::size_t b = a + 1; b < of_.size(); ++b) {
      int pair[2];
      open_pair(SOCK_STREAM, pair);
      of_[a][b] = pair[0];
      of_[b][a] = pair[1];
    }
  }
  SocketFiles take(int rank) {
    const auto a = static_cast<std::size_t>(rank);
    close_file(writers_[a]);
    const std::vector<int> none(of_.size(), -1);
    return {.sockets = std::exchange(of_[a], none),
            .mailboxes = std::exchange(writers_, none),
            .mailbox = std::exchange(readers_[a], -1)};
  }
  /// Call this in the parent once the process of the rank has its own copies.
  void close_of(int rank) {
    close(of_[static_cast<std::size_t>(rank)]);
    close_file(readers_[static_cast<std::size_t>(rank)]);
  }
  void close_all() {
    for (auto& row : of_) close(row);
    close(readers_);
    close(writers_);
  }

 private:
  static std::size_t of_size(const ProcessOptions& options) {
    return static_cast<std::size_t>(options.count);
  }
  static void open_pair(int type, int (&pair)[2]) {
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair) != 0) fail("socketpair");
  }
  static void close_file(int& file) {
    if (file >= 0) ::close(file);
    file = -1;
  }
  static void close(std::vector<int>& files) {
    for (int& file : files) close_file(file);
  }

  /// The parent holds the most sockets when half of the processes have started: each process of the
  /// other half needs one to each of these, count^2 / 4 in total. Each mailbox needs 2.
  static void raise_limit(const ProcessOptions& options) {
    constexpr std::int64_t kOtherFiles = 64;
    const std::int64_t count = options.count;
    const std::int64_t needed = count * count / 4 + 4 * count + kOtherFiles;
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    if (limit.rlim_max < static_cast<rlim_t>(needed)) {
      throw UserError({.what = "one process per device: the processes need more sockets than the "
                               "limit on open files allows",
                       .where = options.where,
                       .found = fmt::format("{} processes, which need {} files", count, needed),
                       .wanted = fmt::format("at most {}, the hard limit on open files",
                                             static_cast<std::int64_t>(limit.rlim_max)),
                       .cure = "use fewer devices, or raise the limit (ulimit -Hn)"});
    }
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }

  std::vector<std::vector<int>> of_;
  std::vector<int> readers_, writers_;  // the ends of the mailboxes, by rank
};

/// Runs in each new process; returns its exit code. Throws nothing: the code that called
/// run_processes() must go on in the parent only.
int run_body(const ProcessOptions& options, const std::function<void()>& body,
             LinkTransport& mine) {
  const CurrentWorld scope(
      {.transport = &mine,
       .num_groups = options.num_groups,
       .devices_per_group = options.num_groups > 1
                                ? options.count / options.num_groups * options.devices_per_process
                                : 0});
  try {
    body();
    meet();
    mine.leave();
    return 0;
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    mine.give_up(text_of_error(error));
    return report_error(options.on_error, error, mine.is_reporter());
  }
}

/// The new processes, as seen by their parent.
class Family {
 public:
  explicit Family(const ProcessOptions& options) : options_(options) {}
  ~Family() {
    for (Member& member : members_) {
      if (member.has_ended) continue;
      kill(member.pid, SIGKILL);
      while (waitpid(member.pid, nullptr, 0) < 0 && errno == EINTR) continue;
    }
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  /// Call this before the first process starts: add() must not fail after a fork.
  void reserve() { members_.reserve(static_cast<std::size_t>(options_.count)); }
  void add(pid_t pid) { members_.push_back({.pid = pid}); }

  /// Waits for all of them and returns the exit code of the run.
  int wait() {
    RunningTime time(std::chrono::milliseconds(100));
    std::chrono::nanoseconds since_failure{0};
    std::chrono::nanoseconds since_all_stopped{0};
    while (num_ended_ < members_.size()) {
      look();
      const std::chrono::nanoseconds passed = time.look();
      if (code_ != 0) since_failure += passed;
      // If all are stopped, none of them can notice that the others are silent.
      since_all_stopped = are_all_stopped() ? since_all_stopped + passed : 0 * passed;
      const bool is_time_up = std::max(since_failure, since_all_stopped) >= options_.timeout;
      if (code_ != 0 || is_time_up) kill_rest(is_time_up);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return code_;
  }

 private:
  struct Member {
    pid_t pid = 0;
    bool has_ended = false;
    bool is_stopped = false;
    bool is_killed = false;  // by this process
  };

  bool are_all_stopped() const {
    return std::all_of(members_.begin(), members_.end(),
                       [](const Member& member) { return member.has_ended || member.is_stopped; });
  }

  void look() {
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      Member& member = members_[rank];
      int status = 0;
      constexpr int kOptions = WNOHANG | WUNTRACED | WCONTINUED;
      if (member.has_ended || waitpid(member.pid, &status, kOptions) != member.pid) continue;
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        member.is_stopped = WIFSTOPPED(status);
        continue;
      }
      member.has_ended = true;
      ++num_ended_;
      int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
      if (WIFSIGNALED(status)) code = report(rank, WTERMSIG(status));
      // Code 2 (a fault) may only be a reaction to the end of another process, so a different code
      // is preferred.
      if (code != 0 && (code_ == 0 || code_ == 2)) code_ = code;
    }
  }

  int report(std::size_t rank, int signal) {
    const std::string who =
        rank_name(static_cast<int>(rank), options_.count, options_.count / options_.num_groups);
    const std::string text =
        members_[rank].is_killed
            ? fmt::format("{} {} and was killed", who,
                          members_[rank].is_stopped ? "was stopped" : "did not end in time")
            : fmt::format("{} was ended by signal {} ({})", who, signal, strsignal(signal));
    return options_.on_error(std::make_exception_ptr(RuntimeFault(text)), true);
  }

  /// Kills the processes that are stopped or, if the time is up, all that are left.
  void kill_rest(bool is_time_up) {
    for (Member& member : members_) {
      if (member.has_ended || member.is_killed || !(is_time_up || member.is_stopped)) continue;
      member.is_killed = kill(member.pid, SIGKILL) == 0;
    }
  }

  const ProcessOptions& options_;
  std::vector<Member> members_;
  std::size_t num_ended_ = 0;
  int code_ = 0;
};

}  // namespace

Transport* transport() { return world().transport; }

int num_sharing_cores() { return sharing_cores; }

void set_num_sharing_cores(int count) { sharing_cores = count; }

std::string text_of_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

int report_error(const OnError& on_error, const std::exception_ptr& error, bool is_reporter) {
  try {
    return on_error(error, is_reporter);
  } catch (...) {
    const RuntimeFault thrown(text_of_error(std::current_exception()));
    try {
      return on_error(std::make_exception_ptr(thrown), is_reporter);
    } catch (...) {
      return 2;
    }
  }
}

void meet() {
  static const CollectiveLabel label{.kind = "barrier", .op = "end of the program", .span = {}};
  all_values(0, label);
}

int run_processes(const ProcessOptions& options, const std::function<void()>& body) {
  require(options.count >= 1 && transport() == nullptr,
          "processes are made once, by the first one");
  require(options.num_groups >= 1 && options.count % options.num_groups == 0,
          "all groups have equally many processes");
  if (Engine::instance().has_computed()) {
    throw UserError({.what = "one process per device: this process has already started threads",
                     .where = options.where,
                     .found = "an array was computed before",
                     .wanted = "a process that has computed nothing yet",
                     .cure = "start the processes first, and compute only inside them"});
  }
  const pid_t parent = getpid();
  Sockets sockets(options);
  Family family(options);
  // Otherwise every process would write the buffered output once more.
  std::fflush(nullptr);
  family.reserve();
  for (int rank = 0; rank < options.count; ++rank) {
    sockets.make(rank);
    const pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid > 0) {
      family.add(pid);
      sockets.close_of(rank);
      continue;
    }
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent) _exit(2);
    SocketFiles mine = sockets.take(rank);
    sockets.close_all();
    int code = 0;
    {
      set_num_sharing_cores(options.count);
      const LinkOptions how{.processes_per_group = options.count / options.num_groups,
                            .timeout = options.timeout};
      LinkTransport transport(make_socket_link(rank, std::move(mine)), how);
      code = run_body(options, body, transport);
    }
    // _exit() runs no destructors and no exit handlers: those belong to the parent.
    std::fflush(nullptr);
    _exit(code);
  }
  return family.wait();
}

namespace {

/// Sends `mine` to all others, and receives theirs into `all` by rank; the entry of this rank is
/// not written.
void exchange_all(std::span<const std::byte> mine, const std::vector<std::span<std::byte>>& all,
                  const CollectiveLabel& label) {
  std::vector<Transport::Send> sends;
  std::vector<Transport::Receive> receives;
  Transport& all_processes = *transport();
  for (int rank = 0; rank < all_processes.size(); ++rank) {
    if (rank == all_processes.rank()) continue;
    sends.push_back({rank, mine});
    receives.push_back({rank, all[static_cast<std::size_t>(rank)]});
  }
  all_processes.begin(label);
  all_processes.exchange(sends, receives);
}

}  // namespace

std::vector<std::int64_t> all_values(std::int64_t value, const CollectiveLabel& label) {
  if (transport() == nullptr) return {value};
  std::vector<std::int64_t> values(static_cast<std::size_t>(transport()->size()), value);
  std::vector<std::span<std::byte>> places;
  for (std::int64_t& each : values) places.push_back(std::as_writable_bytes(std::span(&each, 1)));
  exchange_all(std::as_bytes(std::span(&value, 1)), places, label);
  return values;
}

std::vector<std::string> all_texts(const std::string& text, const CollectiveLabel& label) {
  if (transport() == nullptr) return {text};
  const std::vector<std::int64_t> sizes = all_values(std::ssize(text), label);
  std::vector<std::string> texts(sizes.size());
  std::vector<std::span<std::byte>> places;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    texts[rank].resize(static_cast<std::size_t>(sizes[rank]));
    places.push_back(std::as_writable_bytes(std::span(texts[rank])));
  }
  exchange_all(std::as_bytes(std::span(text)), places, label);
  texts[static_cast<std::size_t>(transport()->rank())] = text;
  return texts;
}

}  // namespace tessera::run
