// Runs commands while a system call on their files fails, once or from then on. Each command must
// end with exit code 0, or with exit code 2 and the reason. Every checkpoint on disk must be
// undamaged and have the bits of its step.
//
//   tessera_faults_system_calls --seed 1 --cases 100     a sample
//   tessera_faults_system_calls --all                    every call with every error
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>
#include <unistd.h>

#include <tessera/checkpoint.h>

#include "tests/faults/traced.h"
#include "tests/fuzz/random.h"
#include "tests/fuzz/run_cases.h"

namespace {

namespace fs = std::filesystem;
namespace checkpoint = tessera::checkpoint;

using tessera::testing::SystemCall;
using tessera::testing::TraceOptions;
using tessera::testing::TraceResult;
using Files = std::map<std::string, std::string>;

constexpr unsigned kSecondsPerCase = 120;
constexpr std::array kErrors = {EIO, ENOSPC, EINTR, ENOMEM, EACCES, EMFILE};
constexpr int kSteps = 3;

const std::string kTrain =
    "train lm --vocab 8 --seq 4 --d-model 4 --heads 1 --layers 1 --d-ff 4 --batch 2 --log-every "
    "1000 --progress off --threads 1 --every 1 --steps 3 --checkpoint run ";

struct Command {
  std::string line;
  bool is_resuming = false;  // continues a run from step 2
  std::string target = {};   // another folder that it writes
};

std::vector<Command> commands() {
  return {{.line = kTrain + "--mesh data=2 --keep 2"},
          {.line = kTrain + "--mesh data=2 --keep 1 --resume", .is_resuming = true},
          {.line = kTrain + "--mesh data=2 --resume --isolated --timeout 20", .is_resuming = true},
          {.line = "checkpoint verify run", .is_resuming = true},
          {.line = "checkpoint convert run out", .is_resuming = true, .target = "out"},
          {.line = "checkpoint convert run out --to orbax", .is_resuming = true, .target = "out"}};
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

Files files_below(const fs::path& folder) {
  Files files;
  if (!fs::exists(folder)) return files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    files[fs::relative(entry.path(), folder).string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

struct Fault {
  std::size_t command = 0;
  int call = 0;  // which of its calls fails
  int reason = EIO;
  bool stays = false;  // all later calls fail, too
};

/// EINTR cannot stay: an interrupted call is repeated until it is not interrupted.
bool can_stay(int reason) { return reason != EINTR; }

std::string text_of(const Fault& fault, const std::vector<Command>& commands) {
  return fmt::format("call {} and {} of `{}` fails: {}", fault.call,
                     fault.stays ? "all after it" : "no other", commands[fault.command].line,
                     std::strerror(fault.reason));
}

class Trials {
 public:
  explicit Trials(const fs::path& folder) : folder_(folder), work_(folder / "work") {
    fs::create_directories(folder_ / "begun");
    fs::create_directories(work_);
    // All steps of an undisturbed run. A run that resumes starts with the first two.
    run(kTrain + "--mesh data=2");
    for (int step = 1; step <= kSteps; ++step) {
      steps_[step] = files_below(checkpoint::step_path((work_ / "run").string(), step));
      if (step < kSteps) {
        const std::string name = fs::path(checkpoint::step_path("run", step)).filename();
        fs::copy(work_ / "run" / name, folder_ / "begun" / name, fs::copy_options::recursive);
      }
    }
    for (const Command& command : commands_) {
      make_ready(command);
      int count = 0;
      TraceOptions options;
      options.answer = [&](const SystemCall&) -> std::optional<std::int64_t> {
        ++count;
        return std::nullopt;
      };
      const TraceResult result = run(command.line, options);
      if (result.exit_code != 0) throw std::runtime_error(result.stderr_text);
      counts_.push_back(count);
      targets_.push_back(files_below(work_ / "out"));
    }
  }

  const std::vector<Command>& commands() const { return commands_; }
  int num_calls(std::size_t command) const { return counts_[command]; }
  int num_ended_well() const { return ended_well_; }
  int num_refused() const { return refused_; }

  /// What is wrong; empty if nothing is.
  std::string problem_of(const Fault& fault) {
    const Command& command = commands_[fault.command];
    make_ready(command);
    int count = 0;
    std::string failed;
    TraceOptions options;
    options.answer = [&](const SystemCall& call) -> std::optional<std::int64_t> {
      ++count;
      if (fault.stays ? count < fault.call : count != fault.call) return std::nullopt;
      if (failed.empty()) failed = fmt::format("{} {}", call.name, call.path);
      return -fault.reason;
    };
    const TraceResult result = run(command.line, options);
    const std::string problem = problem_of(command, fault, result);
    if (problem.empty()) return {};
    return fmt::format("{} ({}): {}\n  exit code {}, signal {}\n{}", text_of(fault, commands_),
                       failed, problem, result.exit_code, result.signal, result.stderr_text);
  }

 private:
  TraceResult run(const std::string& line, TraceOptions options = {}) const {
    options.folder = work_;
    options.seconds = kSecondsPerCase;
    return tessera::testing::run_traced(TESSERA_COMMAND, words_of(line), options);
  }

  void make_ready(const Command& command) const {
    fs::remove_all(work_);
    fs::create_directories(work_);
    if (command.is_resuming)
      fs::copy(folder_ / "begun", work_ / "run", fs::copy_options::recursive);
  }

  std::string problem_of(const Command& command, const Fault& fault, const TraceResult& result) {
    const bool is_verifying = command.line.starts_with("checkpoint verify");
    if (result.signal != 0) return "it ends by a signal";
    if (result.exit_code != 0 && result.exit_code != 2 && !(is_verifying && result.exit_code == 1))
      return "it ends with another exit code";
    if (result.exit_code == 0 && !result.stderr_text.empty()) return "it says something";
    if (result.exit_code != 0 &&
        result.stderr_text.find(std::strerror(fault.reason)) == std::string::npos) {
      return "it does not say why";
    }
    ++(result.exit_code == 0 ? ended_well_ : refused_);
    if (const std::string problem = problem_of_steps(command, result.exit_code == 0);
        !problem.empty()) {
      return problem;
    }
    if (!command.target.empty() && fs::exists(work_ / command.target) &&
        files_below(work_ / command.target) != targets_[fault.command]) {
      return "what it wrote is another one";
    }
    const bool is_training = command.line.starts_with("train");
    if (!is_training || result.exit_code == 0) return {};
    return problem_of_going_on(command);
  }

  std::string problem_of_steps(const Command& command, bool is_done) const {
    const std::string path = (work_ / "run").string();
    const std::vector<std::int64_t> steps = checkpoint::steps_in(path);
    for (const std::int64_t step : steps) {
      const std::vector<std::string> damage = checkpoint::verify(checkpoint::step_path(path, step));
      if (!damage.empty()) return damage[0];
      if (files_below(checkpoint::step_path(path, step)) != steps_.at(static_cast<int>(step)))
        return fmt::format("step {} has other bits", step);
    }
    const bool is_training = command.line.starts_with("train");
    const std::int64_t least = is_training && is_done ? kSteps : command.is_resuming ? 2 : 0;
    const std::int64_t last = steps.empty() ? 0 : steps.back();
    return last >= least ? std::string() : fmt::format("step {} is the last", last);
  }

  /// The same command, repeated with --resume, must reach the same final state.
  std::string problem_of_going_on(const Command& command) const {
    const std::vector<std::int64_t> steps = checkpoint::steps_in((work_ / "run").string());
    if (!steps.empty() && steps.back() == kSteps) return {};
    const TraceResult result = run(command.line + (command.is_resuming ? "" : " --resume"));
    if (result.exit_code != 0) return "it cannot go on: " + result.stderr_text;
    return problem_of_steps(command, true);
  }

  fs::path folder_, work_;
  std::vector<Command> commands_ = ::commands();
  std::map<int, Files> steps_;
  std::vector<int> counts_;
  std::vector<Files> targets_;
  int ended_well_ = 0, refused_ = 0;
};

bool report(const std::string& problem) {
  if (!problem.empty()) fmt::print("FAILED: {}\n", problem);
  return problem.empty();
}

bool try_all(Trials& trials) {
  int failures = 0;
  for (std::size_t command = 0; command < trials.commands().size(); ++command) {
    for (int call = 1; call <= trials.num_calls(command); ++call) {
      for (const int reason : kErrors) {
        failures += report(trials.problem_of({command, call, reason, false})) ? 0 : 1;
        if (!can_stay(reason)) continue;
        failures += report(trials.problem_of({command, call, reason, true})) ? 0 : 1;
      }
    }
  }
  return failures == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* program = "tessera_faults_system_calls";
  const bool is_all = argc == 2 && std::string_view(argv[1]) == "--all";
  const auto options =
      tessera::fuzz::read_options(program, is_all ? 1 : argc, argv, {.cases = 100, .seconds = 1e9});
  if (!tessera::testing::can_trace()) {
    fmt::print("processes may not be traced here\n");
    return 77;
  }
  const fs::path folder = fs::temp_directory_path() / fmt::format("{}.{}", program, getpid());
  fs::create_directories(folder);
  Trials trials(folder);
  bool is_good = true;
  if (is_all) {
    is_good = try_all(trials);
  } else {
    is_good = tessera::fuzz::run_cases(program, options, kSecondsPerCase, [&](std::uint64_t seed) {
      tessera::fuzz::Random random(seed);
      const std::size_t command = random.pick(trials.commands().size());
      const int call = static_cast<int>(random.between(1, trials.num_calls(command)));
      const int reason = kErrors[random.pick(kErrors.size())];
      const bool stays = can_stay(reason) && random.chance(30);
      return report(trials.problem_of({command, call, reason, stays}));
    });
  }
  fs::remove_all(folder);
  fmt::print("{} commands ended well, {} with an error\n", trials.num_ended_well(),
             trials.num_refused());
  return is_good ? 0 : 1;
}
