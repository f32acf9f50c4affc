// Runs with one process per device while processes are killed, stopped and continued, and sockets
// are closed, at random times. Each run must either continue with the same bits, or end in time
// with exit code 2. It must leave no process behind.
//
//   faults_isolated --seed 1 --cases 300
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/cases/case_file.h"
#include "tests/fuzz/run_cases.h"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Words = std::vector<std::string>;

constexpr milliseconds kTimeout{4000};
constexpr milliseconds kMore{5000};          // a run must end within this time after its timeout
constexpr milliseconds kSlowMachine{20000};  // extra time on a machine that is busy

struct Model {
  std::string flags;
  std::vector<std::string> meshes;
};

const std::vector<Model>& models() {
  static const std::vector<Model> all = {
      {.flags =
           "train lm --vocab 30 --seq 32 --d-model 64 --heads 2 --layers 2 --d-ff 64 --batch 12 "
           "--steps 25",
       .meshes = {"data=2", "data=4", "data=2,model=2", "data=3"}},
      {.flags = "train pipeline --batch 8 --microbatches 2 --seq 8 --d-model 16 --heads 2 "
                "--layers 2 --steps 30",
       .meshes = {"stage=2,fsdp=1", "stage=2,fsdp=2"}},
  };
  return all;
}

/// A command in its own process group.
class Run {
 public:
  Run(const std::string& line, const fs::path& folder) : folder_(folder) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    Words words = {TESSERA_COMMAND};
    std::istringstream stream(line + " --progress off --log-every 1000000 --json r.json");
    for (std::string word; stream >> word;) words.push_back(word);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork fails");
    if (pid_ == 0) {
      setpgid(0, 0);
      const int output = open((folder / "output").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      if (chdir(folder.c_str()) != 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0) _exit(127);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    setpgid(pid_, pid_);
  }
  ~Run() {
    if (has_ended_) return;
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  pid_t pid() const { return pid_; }

  /// The processes of the devices that exist now, in the order of their ranks.
  std::vector<pid_t> ranks() {
    std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", pid_));
    std::vector<pid_t> found;
    for (pid_t child = 0; file >> child;) found.push_back(child);
    for (const pid_t child : found) seen_[child] = true;
    return found;
  }

  /// Whether it ends within `time`.
  bool ends_within(milliseconds time) {
    const Clock::time_point end = Clock::now() + time;
    while (!has_ended()) {
      if (Clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }
  bool has_ended() {
    if (!has_ended_) has_ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    if (!has_ended_) ranks();
    return has_ended_;
  }
  /// Its exit code, or minus the signal that ended it.
  int code() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_); }

  /// Whether any of its processes still exists after waiting for kMore.
  bool leaves_processes() const {
    const Clock::time_point end = Clock::now() + kMore;
    while (kill(-pid_, 0) == 0) {
      if (Clock::now() > end) return true;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return false;
  }

  /// The bits of its losses and parameters.
  std::string bits() const {
    std::ifstream file(folder_ / "r.json");
    const auto report = nlohmann::json::parse(file, nullptr, false);
    if (!report.is_object()) return "no report";
    return report.at("loss_bits").dump() + report.at("params_hash").dump();
  }
  std::string output() const { return tessera::testing::contents(folder_ / "output"); }

 private:
  fs::path folder_;
  pid_t pid_ = 0;
  int status_ = 0;
  bool has_ended_ = false;
  std::map<pid_t, bool> seen_;
};

enum class Fault {
  kill,
  stop,
  stop_all,
  pause,        // one process, for less than the timeout
  long_pause,   // one process, for longer than the timeout
  pause_group,  // as Ctrl-Z and fg do
  close_socket,
  kill_parent,
};
constexpr Fault kFaults[] = {Fault::kill,         Fault::stop,       Fault::stop_all,
                             Fault::pause,        Fault::long_pause, Fault::pause_group,
                             Fault::close_socket, Fault::kill_parent};

const char* name_of(Fault fault) {
  switch (fault) {
    case Fault::kill:
      return "SIGKILL";
    case Fault::stop:
      return "SIGSTOP";
    case Fault::stop_all:
      return "SIGSTOP of all";
    case Fault::pause:
      return "SIGSTOP, SIGCONT";
    case Fault::long_pause:
      return "SIGSTOP, SIGCONT after the timeout";
    case Fault::pause_group:
      return "SIGTSTP, SIGCONT of the group";
    case Fault::close_socket:
      return "a closed socket";
    case Fault::kill_parent:
      break;
  }
  return "SIGKILL of the first process";
}

/// Shuts down one connection of a process, as if its peer had closed it.
void close_socket(pid_t process, std::mt19937_64& random) {
  std::vector<int> sockets;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(fmt::format("/proc/{}/fd", process), ignored)) {
    const std::string target = fs::read_symlink(file.path(), ignored).string();
    if (target.starts_with("socket:")) sockets.push_back(std::stoi(file.path().filename()));
  }
  if (sockets.empty()) return;
  std::sort(sockets.begin(), sockets.end());
  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  const auto mine =
      static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, sockets[random() % sockets.size()], 0));
  if (mine >= 0) {
    shutdown(mine, SHUT_RDWR);
    close(mine);
  }
  if (pidfd >= 0) close(pidfd);
}

/// Injects the fault; true if the run must continue.
bool strike(Run& run, Fault fault, std::mt19937_64& random) {
  std::vector<pid_t> ranks = run.ranks();
  while (ranks.empty() && !run.ends_within(milliseconds(1))) ranks = run.ranks();
  if (fault == Fault::kill_parent) return kill(run.pid(), SIGKILL), false;
  if (fault == Fault::pause_group) {
    kill(-run.pid(), SIGTSTP);
    std::this_thread::sleep_for(random() % 3 == 0 ? milliseconds(300) : kTimeout * 5 / 4);
    kill(-run.pid(), SIGCONT);
    return true;
  }
  if (fault == Fault::stop_all) {
    for (const pid_t rank : ranks) kill(rank, SIGSTOP);
    return false;
  }
  if (ranks.empty()) return true;
  const pid_t rank = ranks[random() % ranks.size()];
  switch (fault) {
    case Fault::kill:
      kill(rank, SIGKILL);
      return false;
    case Fault::stop:
      kill(rank, SIGSTOP);
      return false;
    case Fault::close_socket:
      close_socket(rank, random);
      return false;
    default:
      kill(rank, SIGSTOP);
      std::this_thread::sleep_for(fault == Fault::pause ? milliseconds(100 + random() % 400)
                                                        : kTimeout * 3 / 2);
      kill(rank, SIGCONT);
      return fault == Fault::pause;
  }
}

class Trials {
 public:
  Trials() {
    char name[] = "/tmp/tessera_faults_XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp fails");
    folder_ = name;
  }
  ~Trials() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  bool check(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const Fault fault = kFaults[random() % std::size(kFaults)];
    const Model& model = models()[random() % models().size()];
    const std::string& mesh = model.meshes[random() % model.meshes.size()];
    const Wanted wanted = wanted_of(model, mesh);
    Run run(line_of(model, mesh), folder_ / "run");
    const double share = std::uniform_real_distribution<double>(0, 0.95)(random);
    const auto start = std::chrono::duration_cast<milliseconds>(share * wanted.duration);
    if (!run.ends_within(start) && strike(run, fault, random)) must_go_on_ = true;
    const std::string wrong = verdict(run, fault, wanted);
    ++count_[name_of(fault)][run.has_ended() ? run.code() : 999];
    must_go_on_ = false;
    if (wrong.empty()) return true;
    fmt::print("seed {}: {} after {} ms of tessera {}\n  {}\n{}\n", seed, name_of(fault),
               start.count(), line_of(model, mesh), wrong, run.output());
    std::fflush(stdout);
    return false;
  }

  void tell() const {
    for (const auto& [fault, codes] : count_) {
      std::string text;
      for (const auto& [code, times] : codes)
        text += fmt::format("  exit code {}: {}", code, times);
      fmt::print("{:36}{}\n", fault, text);
    }
    fmt::print("the longest time from a fault to the end of the run: {:.1f} s; timeout {:.1f} s\n",
               std::chrono::duration<double>(longest_).count(),
               std::chrono::duration<double>(kTimeout).count());
  }

 private:
  struct Wanted {
    std::string bits;
    std::chrono::duration<double> duration;
  };

  static std::string line_of(const Model& model, const std::string& mesh) {
    return fmt::format("{} --mesh {} --isolated --timeout {}", model.flags, mesh,
                       static_cast<double>(kTimeout.count()) / 1000);
  }

  /// The expected bits, from a run without a mesh, and the duration of an undisturbed run.
  Wanted wanted_of(const Model& model, const std::string& mesh) {
    const auto known = wanted_.find(line_of(model, mesh));
    if (known != wanted_.end()) return known->second;
    Run whole(model.flags + " --mesh none", folder_ / "run");
    if (!whole.ends_within(milliseconds(60000)) || whole.code() != 0)
      throw std::runtime_error(whole.output());
    const std::string bits = whole.bits();
    const Clock::time_point start = Clock::now();
    Run isolated(line_of(model, mesh), folder_ / "run");
    if (!isolated.ends_within(milliseconds(60000)) || isolated.code() != 0)
      throw std::runtime_error(isolated.output());
    if (isolated.bits() != bits) throw std::runtime_error("other bits: " + line_of(model, mesh));
    return wanted_[line_of(model, mesh)] = {.bits = bits, .duration = Clock::now() - start};
  }

  /// What is wrong with how the run ends; empty if nothing is.
  std::string verdict(Run& run, Fault fault, const Wanted& wanted) {
    const auto rest = std::chrono::duration_cast<milliseconds>(5 * wanted.duration);
    const Clock::time_point start = Clock::now();
    if (!run.ends_within(kTimeout + kMore + std::max(rest, kSlowMachine))) return "it hangs";
    longest_ = std::max(longest_, Clock::now() - start);
    if (run.leaves_processes()) return "processes are left";
    if (fault == Fault::kill_parent && run.code() == -SIGKILL) return {};
    if (run.code() == 0) return run.bits() == wanted.bits ? "" : "other bits";
    if (must_go_on_) return fmt::format("exit code {} where it should go on", run.code());
    if (run.code() != 2) return fmt::format("exit code {}", run.code());
    return run.output().find("fault: ") == std::string::npos ? "no message" : "";
  }

  fs::path folder_;
  bool must_go_on_ = false;
  Clock::duration longest_{0};
  std::map<std::string, Wanted> wanted_;
  std::map<std::string, std::map<int, int>> count_;
};

}  // namespace

int main(int argc, char** argv) {
  const tessera::fuzz::RunOptions options =
      tessera::fuzz::read_options("faults_isolated", argc, argv, {.seed = 1, .cases = 300});
  Trials trials;
  int bad = 0;
  tessera::fuzz::run_cases("faults_isolated", options, 180, [&](std::uint64_t seed) {
    if (!trials.check(seed)) ++bad;
    return true;
  });
  trials.tell();
  fmt::print("{} of {} cases are bad\n", bad, options.cases);
  return bad == 0 ? 0 : 1;
}
