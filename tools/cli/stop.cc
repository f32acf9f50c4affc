#include "stop.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <limits>
#include <new>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <tessera/engine.h>
#include <tessera/error.h>

namespace tessera::cli {

namespace {

/// Lies in memory that forked processes share. `word` is twice the greatest step that any process
/// has begun, counted from 1, plus 1 if a signal has arrived. After a signal, the step in `word`
/// does not change any more: it is the last step of all processes. Signal handlers may use this at
/// any time, so it must be atomic and lock-free.
struct Shared {
  std::atomic<std::int64_t> word{0};
  std::atomic<int> signal{0};
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free &&
              std::atomic<int>::is_always_lock_free);

constexpr std::int64_t kAsked = 1;
constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max() - 1;  // `word` after end()

struct Caught {
  int signal;
  const char* name;
};
constexpr std::array<Caught, 4> kCaught = {
    {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGPIPE, "SIGPIPE"}}};

Shared* shared = nullptr;
pid_t owner = 0;                        // the process that made the request
std::atomic<std::int64_t> first_ns{0};  // time of this process's first signal; 0: none yet
std::array<struct sigaction, kCaught.size()> old_actions;

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

/// Whether this signal is a second request. A terminal, a shell or timeout(1) may send one request
/// twice, to the process and to its group, so signals within 0.1 s of the first one do not count.
bool is_second() {
  constexpr std::int64_t kSameNs = 100'000'000;
  std::int64_t first = 0;
  const std::int64_t now = now_ns();
  return !first_ns.compare_exchange_strong(first, now) && now - first > kSameNs;
}

void do_as_always(int signal) {
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(signal, &usual, nullptr);
  raise(signal);  // delivered when the handler returns
}

/// Records the request and its signal. Returns false if the run has not begun or has ended.
bool ask(int signal) {
  std::int64_t word = shared->word.load();
  while ((word & kAsked) == 0) {
    // SIGPIPE is recorded even before the first step: its default action would end one process, and
    // the others would report that as an error.
    if (word == kEnd || (word == 0 && signal != SIGPIPE)) return false;
    int none = 0;
    shared->signal.compare_exchange_strong(none, signal);
    if (shared->word.compare_exchange_weak(word, word | kAsked)) return true;
  }
  return true;
}

void on_signal(int signal) {
  const int kept = errno;
  // Only the owner reacts to a second signal: the processes that it forked end with it.
  const bool is_owner = getpid() == owner;
  if (!ask(signal) || (is_owner && signal != SIGPIPE && is_second())) do_as_always(signal);
  errno = kept;
}

}  // namespace

std::string signal_name(int signal) {
  for (const Caught& one : kCaught) {
    if (one.signal == signal) return one.name;
  }
  return "signal " + std::to_string(signal);
}

StopRequest::StopRequest() {
  require(shared == nullptr, "a program has one request to stop");
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw RuntimeFault(std::string("mmap: ") + std::strerror(errno));
  shared = new (memory) Shared;
  owner = getpid();
  first_ns = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kCaught.size(); ++i) {
    sigaction(kCaught[i].signal, nullptr, &old_actions[i]);
    if (old_actions[i].sa_handler != SIG_IGN) sigaction(kCaught[i].signal, &action, nullptr);
  }
}

StopRequest::~StopRequest() {
  for (std::size_t i = 0; i < kCaught.size(); ++i) {
    sigaction(kCaught[i].signal, &old_actions[i], nullptr);
  }
  munmap(shared, sizeof(Shared));
  shared = nullptr;
}

namespace {

/// For processes that share no memory: they ask each other before each step whether a signal has
/// arrived at any of them. If so, none of them begins the step.
bool begin_together(std::int64_t mine) {
  const std::vector<std::int64_t> signals = process_allgather(shared->signal.load());
  for (const std::int64_t signal : signals) {
    if (signal == 0) continue;
    shared->signal = static_cast<int>(signal);
    return false;
  }
  std::int64_t word = shared->word.load();
  while (
      !shared->word.compare_exchange_weak(word, std::max(word & ~kAsked, mine) | (word & kAsked)))
    continue;
  return true;
}

}  // namespace

bool StopRequest::begin(std::int64_t step) {
  const std::int64_t mine = 2 * (step + 1);
  if (is_launched() && process_count() > 1) return begin_together(mine);
  std::int64_t word = shared->word.load();
  do {
    if ((word & kAsked) != 0) return mine <= word;
  } while (!shared->word.compare_exchange_weak(word, std::max(word, mine)));
  return true;
}

bool StopRequest::end() { return begin(kEnd / 2 - 1); }

int StopRequest::signal() const { return shared->signal.load(); }

}  // namespace tessera::cli
