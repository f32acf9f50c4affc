// Runs under the launchers of MPI in which, at random times, one rank is killed, is stopped, is
// stopped and continued, has a full disk, or diverges. Each run must either go on with the same
// bits, or end in time with an exit code other than 0, name the rank, and leave no process behind.
// A disturbed run is then resumed in one process and must reach the bits of an undisturbed run.
//
// A run mostly waits, so several runs are tried at once.
//
//   faults_mpi --seed 1 --cases 40
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/cases/case_file.h"
#include "tests/fuzz/run_cases.h"
#include "tests/mpi/launchers.h"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using tessera::testing::Launcher;

constexpr milliseconds kTimeout{4000};
constexpr milliseconds kMore{5000};          // a run must end within this time after its timeout
constexpr milliseconds kSlowMachine{60000};  // extra time on a machine that is busy
constexpr int kAtOnce = 3;
constexpr const char* kMark = "TESSERA_FAULTS_RUN";

const std::string kModel =
    "train lm --vocab 30 --seq 16 --d-model 32 --heads 2 --layers 2 --d-ff 32 --batch 24 --grains "
    "24 "
    "--steps 100 --every 10 --checkpoint saved --resume --progress off --log-every 1000000 "
    "--json r.json ";

/// A process of a run, found by its environment.
struct Rank {
  pid_t pid = 0;
  int rank = -1;  // -1: the launcher or a helper process of it
};

class Run {
 public:
  Run(const std::string& line, const fs::path& folder)
      : folder_(folder), mark_(std::to_string(getpid()) + "." + std::to_string(++num_runs)) {
    // Prepared before the fork: the child must not allocate, because other threads exist.
    const std::string command = fmt::format("exec env {}={} {}", kMark, mark_, line);
    const std::string output_path = folder / "output";
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork fails");
    if (pid_ == 0) {
      setpgid(0, 0);
      const int output = open(output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
      if (chdir(folder_.c_str()) != 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0) _exit(127);
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
  }
  ~Run() {
    for (const Rank& each : processes()) kill(each.pid, SIGKILL);
    if (!has_ended_) waitpid(pid_, nullptr, 0);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  std::vector<Rank> processes() const {
    std::vector<Rank> found;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::istringstream variables(tessera::testing::contents(entry.path() / "environ"));
      bool is_mine = false;
      Rank rank{.pid = std::stoi(name)};
      for (std::string one; std::getline(variables, one, '\0');) {
        is_mine = is_mine || one == kMark + ("=" + mark_);
        const std::size_t equals = one.find('=');
        const std::string variable = one.substr(0, equals);
        if (variable != "OMPI_COMM_WORLD_RANK" && variable != "PMI_RANK") continue;
        rank.rank = std::atoi(one.c_str() + equals + 1);
      }
      const std::string program = tessera::testing::contents(entry.path() / "comm");
      if (program == "tessera-watch\n") rank.rank = -1;
      if (is_mine) found.push_back(rank);
    }
    return found;
  }
  pid_t pid_of(int rank) const {
    for (const Rank& each : processes()) {
      if (each.rank == rank) return each.pid;
    }
    return 0;
  }

  bool ends_within(milliseconds time) {
    const Clock::time_point end = Clock::now() + time;
    while (!has_ended_) {
      has_ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
      if (has_ended_ || Clock::now() > end) break;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return has_ended_;
  }
  int code() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_); }
  bool leaves_processes() const {
    const Clock::time_point end = Clock::now() + kMore;
    while (!processes().empty()) {
      if (Clock::now() > end) return true;
      std::this_thread::sleep_for(milliseconds(20));
    }
    return false;
  }
  std::string output() const { return tessera::testing::contents(folder_ / "output"); }

 private:
  static inline std::atomic<int> num_runs = 0;
  fs::path folder_;
  std::string mark_;
  pid_t pid_ = 0;
  int status_ = 0;
  bool has_ended_ = false;
};

std::string params_hash(const fs::path& folder) {
  std::ifstream file(folder / "r.json");
  const auto report = nlohmann::json::parse(file, nullptr, false);
  return report.is_object() ? report.at("params_hash").dump() : "no report";
}

const std::vector<std::string> kFaults = {"kill",  "stop",  "pause", "disk",   "extra",
                                          "fewer", "other", "ends",  "throws", "slow"};

struct Trial {
  std::string fault;
  Launcher launcher;
  int ranks = 2;
  int guilty = 0;

  bool is_of_command() const {
    return fault == "kill" || fault == "stop" || fault == "pause" || fault == "disk";
  }
  bool goes_on() const { return fault == "pause" || fault == "slow"; }
};

/// The results of all threads.
class Summary {
 public:
  void count(const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++count_[what];
  }
  void time(Clock::duration to_the_end) {
    const std::lock_guard<std::mutex> lock(mutex_);
    longest_ = std::max(longest_, to_the_end);
  }
  void bad(const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++num_bad_;
    fmt::print("{}", what);
    std::fflush(stdout);
  }
  /// Returns the number of bad cases.
  int tell(int num_cases) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [what, times] : count_) fmt::print("{:44}{}\n", what, times);
    fmt::print("the longest time from a fault to the end of the run: {:.1f} s; timeout {:.1f} s\n",
               std::chrono::duration<double>(longest_).count(),
               std::chrono::duration<double>(kTimeout).count());
    fmt::print("{} of {} cases are bad\n", num_bad_, num_cases);
    return num_bad_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> count_;
  Clock::duration longest_{0};
  int num_bad_ = 0;
};

/// Runs trials one after the other, in a separate folder.
class Trials {
 public:
  Trials(const std::vector<Launcher>& launchers, Summary& summary)
      : launchers_(launchers), summary_(summary) {
    char name[] = "/tmp/tessera_faults_XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp fails");
    folder_ = name;
    wanted_ = resumed();
  }
  ~Trials() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  void check(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Trial trial;
    trial.fault = kFaults[random() % kFaults.size()];
    trial.launcher = launchers_[random() % launchers_.size()];
    const int most = trial.is_of_command() ? 4 : 7;
    constexpr int kRanks[] = {2, 3, 4, 6, 5, 7, 8};  // meshes must divide the batch: the first 4
    trial.ranks = kRanks[random() % static_cast<unsigned>(most)];
    trial.guilty = static_cast<int>(random() % static_cast<unsigned>(trial.ranks));
    Outcome outcome = tried(trial, random);
    if (outcome.wrong == kNotNamed) {
      // Processes wait half a second for the findings of the others. That may be too short if the
      // machine stands still for a moment.
      summary_.count(trial.fault + ", " + trial.launcher.name + ": tried again");
      outcome = tried(trial, random);
    }
    if (outcome.wrong.empty()) return;
    summary_.bad(fmt::format("seed {}: {} of rank {} of {}, {}\n  {}\n{}\n", seed, trial.fault,
                             trial.guilty, trial.ranks, trial.launcher.name, outcome.wrong,
                             outcome.output));
  }

 private:
  static constexpr const char* kNotNamed = "the rank is not named";
  struct Outcome {
    std::string wrong;  // empty: nothing is wrong
    std::string output;
  };

  Outcome tried(const Trial& trial, std::mt19937_64 random) {
    fs::remove_all(folder_ / "saved");
    fs::remove(folder_ / "r.json");
    Run run(line_of(trial, random), folder_);
    if (trial.is_of_command()) strike(run, trial, random);
    const Clock::time_point start = Clock::now();
    std::string wrong = verdict(run, trial);
    summary_.time(Clock::now() - start);
    if (wrong.empty() && trial.is_of_command() && resumed() != wanted_) {
      wrong = "other bits after --resume";
    }
    return {std::move(wrong), run.output()};
  }

  std::string line_of(const Trial& trial, std::mt19937_64& random) const {
    const std::string start = trial.launcher.program + " " + trial.launcher.options + "-n ";
    if (!trial.is_of_command()) {
      return fmt::format("{}{} {} {} {} {}", start, trial.ranks, TESSERA_DIVERGING, trial.fault,
                         trial.guilty, random() % 20);
    }
    return fmt::format("{}{} {} {} --mesh data={} --timeout {}", start, trial.ranks,
                       TESSERA_COMMAND, kModel, trial.ranks, kTimeout.count() / 1000);
  }

  /// The hash after all steps, in one process; resumes if a checkpoint was saved.
  std::string resumed() const {
    fs::remove(folder_ / "r.json");
    Run run(std::string(TESSERA_COMMAND) + " " + kModel + " --mesh none", folder_);
    if (!run.ends_within(kSlowMachine) || run.code() != 0) {
      throw std::runtime_error("cannot resume: " + run.output());
    }
    return params_hash(folder_);
  }

  /// Whether the ranks have met. If so, something was saved.
  bool has_saved() const {
    std::error_code ignored;
    return !fs::is_empty(folder_ / "saved", ignored) && !ignored;
  }

  void strike(Run& run, const Trial& trial, std::mt19937_64& random) const {
    const auto delay = milliseconds(random() % 2000);
    if (run.ends_within(delay)) return;
    // Wait until something is saved: the limit would also apply to the memory that MPI shares,
    // which is not on a disk.
    while (trial.fault == "disk" && !has_saved() && !run.ends_within(milliseconds(10))) continue;
    pid_t pid = 0;
    while (pid == 0 && !run.ends_within(milliseconds(10))) pid = run.pid_of(trial.guilty);
    if (pid == 0) return;
    if (trial.fault == "disk") {
      // From now on the process cannot write to files.
      const rlimit limit{.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
      prlimit(pid, RLIMIT_FSIZE, &limit, nullptr);
      return;
    }
    kill(pid, trial.fault == "kill" ? SIGKILL : SIGSTOP);
    if (trial.fault != "pause") return;
    std::this_thread::sleep_for(milliseconds(100 + random() % 1400));
    kill(pid, SIGCONT);
  }

  /// How often the rank is named, by the program or by the launcher.
  static std::size_t times_named(const std::string& output, int rank) {
    const std::regex form(
        fmt::format("rank {0} (has|did)|rank {0}: (fault|an error)|process rank {0} |process {0} "
                    "(could not|cannot)|process {0}: cannot|node {0} \\(rank {0} in comm 0\\): "
                    "Fatal error in internal_Init",
                    rank));
    return static_cast<std::size_t>(
        std::distance(std::sregex_iterator(output.begin(), output.end(), form), {}));
  }

  std::string verdict(Run& run, const Trial& trial) {
    if (!run.ends_within(kTimeout + kMore + kSlowMachine)) return "it hangs";
    if (run.leaves_processes()) return "processes are left";
    const std::string key = trial.fault + ", " + trial.launcher.name + ": ";
    if (run.code() == 0) {
      summary_.count(key + "goes on");
      if (!trial.is_of_command()) return trial.goes_on() ? "" : "exit code 0";
      return params_hash(folder_) == wanted_ ? "" : "other bits";
    }
    if (trial.goes_on()) return fmt::format("exit code {} where it should go on", run.code());
    const bool is_named = times_named(run.output(), trial.guilty) > 0;
    summary_.count(key + (is_named ? "the rank is named" : "the rank is not named"));
    // With two ranks, neither is in the majority. And if a process is stopped before it has met the
    // others, they do not know its rank yet.
    if (is_named || (trial.ranks == 2 && !trial.is_of_command())) return {};
    if (run.output().find("MPI_Init did not end") != std::string::npos) return {};
    // MPICH's mpiexec ends all processes at once, and reports a process id.
    if (trial.fault == "kill") return {};
    return kNotNamed;
  }

  const std::vector<Launcher>& launchers_;
  fs::path folder_;
  std::string wanted_;
  Summary& summary_;
};

/// Tries one seed after the other until none is left or the time is over.
void try_seeds(const tessera::fuzz::RunOptions& options, const std::vector<Launcher>& launchers,
               std::atomic<int>& next, Summary& summary) {
  const Clock::time_point start = Clock::now();
  const auto has_time = [&] {
    return std::chrono::duration<double>(Clock::now() - start).count() < options.seconds;
  };
  std::uint64_t seed = options.seed;
  try {
    Trials trials(launchers, summary);
    for (int number = next++; number < options.cases && has_time(); number = next++) {
      seed = options.seed + static_cast<std::uint64_t>(number);
      trials.check(seed);
    }
  } catch (const std::exception& error) {
    summary.bad(fmt::format("seed {}: {}\n", seed, error.what()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const tessera::fuzz::RunOptions options =
      tessera::fuzz::read_options("faults_mpi", argc, argv, {.seed = 1, .cases = 40});
  // This sets environment variables, so it comes before the threads.
  const std::vector<Launcher> launchers = tessera::testing::launchers();
  if (launchers.empty()) return 77;
  fmt::print("faults_mpi --seed {} --cases {}\n", options.seed, options.cases);
  const Clock::time_point start = Clock::now();
  Summary summary;
  std::atomic<int> next = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < std::min(kAtOnce, options.cases); ++i) {
      threads.emplace_back([&] { try_seeds(options, launchers, next, summary); });
    }
  }
  const int num_bad = summary.tell(options.cases);
  fmt::print("{:.0f} s\n", std::chrono::duration<double>(Clock::now() - start).count());
  return num_bad == 0 ? 0 : 1;
}
