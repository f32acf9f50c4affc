// Runs commands while one allocation, or several in a row, fail. Each command must end with exit
// code 0, or with exit code 2 and one message. What it leaves on disk must be a complete old or new
// state.
//
//   faults_allocations --seed 1 --cases 200      a sample
//   faults_allocations --all                     every allocation of every command
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "tests/cases/case_file.h"
#include "tests/fuzz/run_cases.h"
#include "tests/fuzz/spawn.h"

namespace {

namespace fs = std::filesystem;
using tessera::fuzz::SpawnResult;
using Words = std::vector<std::string>;

Words words_of(const std::string& line) {
  std::istringstream stream(line);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

struct Command {
  std::string line;
  bool trains = false;      // writes the report r.json
  int num_processes = 0;    // number of processes that it forks
  std::string wanted = {};  // its expected output, or the bits in its report
  std::int64_t allocations = 0;
};

const std::string kTiny =
    " --vocab 8 --seq 4 --d-model 4 --heads 1 --layers 1 --d-ff 4 --batch 2 --log-every 1000 "
    "--progress off --threads 1 --json r.json ";

std::vector<Command> commands() {
  return {
      {.line = "train lm --mesh data=2 --steps 2 --checkpoint c --every 1" + kTiny, .trains = true},
      {.line = "train lm --mesh data=2 --steps 3 --checkpoint saved --resume" + kTiny,
       .trains = true},
      {.line = "train lm --mesh none --steps 3 --profile p --tensorboard t --dump d" + kTiny,
       .trains = true},
      {.line = "train lm --mesh data=2 --steps 2 --checkpoint c --every 1 --isolated --timeout 20" +
               kTiny,
       .trains = true,
       .num_processes = 2},
      {.line = "checkpoint verify saved"},
      {.line = "checkpoint ls saved"},
      {.line = "show lm --what sharding --mesh data=2 --vocab 8 --seq 4 --d-model 4 --heads 1 "
               "--layers 1 --d-ff 4 --batch 2"},
      {.line = "schedule 1F1B --stages 2 --ranks 2 --microbatches 2 --format svg"},
      {.line = "reshard --mesh a=2,b=2 --shape 8,8 --from a,b --to b,a"},
      {.line = "train lm --no-such-flag"},
  };
}

/// A folder for one run at a time, with a checkpoint in `saved`.
class Bench {
 public:
  Bench() {
    char name[] = "/tmp/tessera_faults_XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp fails");
    root_ = name;
    fs::create_directories(root_ / "kept");
    const SpawnResult made =
        run("train lm --mesh data=2 --steps 2 --checkpoint ../kept/saved --every 1" + kTiny);
    if (made.exit_code != 0) throw std::runtime_error("no checkpoint: " + made.stderr_text);
  }
  ~Bench() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  fs::path folder() const { return root_ / "run"; }

  /// Runs in a folder that holds only the checkpoint.
  SpawnResult run(const std::string& line, const Words& environment = {}) {
    fs::remove_all(folder());
    fs::create_directories(folder());
    if (fs::exists(root_ / "kept/saved"))
      fs::copy(root_ / "kept/saved", folder() / "saved", fs::copy_options::recursive);
    return run_here(line, environment);
  }
  SpawnResult run_here(const std::string& line, const Words& environment = {}) const {
    return tessera::fuzz::spawn(TESSERA_COMMAND, words_of(line),
                                {.environment = environment, .folder = folder()});
  }

 private:
  fs::path root_;
};

/// The output of a command, or for a training run the bits in its report.
std::string outcome(const Command& command, const Bench& bench, const SpawnResult& result) {
  if (!command.trains) return result.stdout_text + result.stderr_text;
  const auto report =
      nlohmann::json::parse(tessera::testing::contents(bench.folder() / "r.json"), nullptr, false);
  if (!report.is_object()) return "no report";
  return report.at("loss_bits").dump() + report.at("params_hash").dump();
}

/// What is wrong with the messages; empty if nothing is.
std::string wrong_messages(const Command& command, const std::string& text) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const std::size_t fault = line.find(": fault: ");
    if (!line.starts_with("tessera") || fault == std::string::npos) return "an odd message";
  }
  if (count == 0) return "no message";
  return count > std::max(1, command.num_processes + 1) ? "several messages" : "";
}

/// What is wrong with the checkpoints in the folder; empty if nothing is.
std::string wrong_checkpoints(const Bench& bench) {
  for (const char* name : {"c", "saved"}) {
    const fs::path folder = bench.folder() / name;
    if (!fs::exists(folder)) continue;
    const std::string first = std::string(name) == "saved" ? "step_00000002" : "step_00000001";
    bool has_first = false;
    for (const auto& step : fs::directory_iterator(folder)) {
      const std::string step_name = step.path().filename();
      if (!step_name.starts_with("step_")) continue;
      has_first = has_first || step_name == first;
      const SpawnResult verified = bench.run_here("checkpoint verify " + step.path().string());
      if (verified.exit_code != 0) return step_name + ": " + verified.stderr_text;
    }
    if (std::string(name) == "saved" && !has_first) return "a checkpoint is lost";
  }
  return {};
}

/// Runs the command while allocations fail. If it ends badly, prints why and returns false.
bool check(Bench& bench, const Command& command, std::int64_t after, std::int64_t count,
           int process) {
  const SpawnResult result = bench.run(
      command.line, {"LD_PRELOAD=" FAILING_MALLOC, fmt::format("FAIL_AFTER={}", after),
                     fmt::format("FAIL_COUNT={}", count), fmt::format("FAIL_PROCESS={}", process)});
  std::string wrong;
  const bool is_done = result.exit_code == 0 || result.stderr_text == command.wanted;
  if (result.signal != 0) {
    wrong = fmt::format("ended by signal {}", result.signal);
  } else if (!is_done && result.exit_code != 2) {
    wrong = fmt::format("exit code {}", result.exit_code);
  } else if (is_done && outcome(command, bench, result) != command.wanted) {
    wrong = "other results: " + outcome(command, bench, result);
  } else if (!is_done) {
    wrong = wrong_messages(command, result.stderr_text);
  }
  if (wrong.empty()) wrong = wrong_checkpoints(bench);
  if (wrong.empty()) return true;
  std::printf("FAIL_AFTER=%lld FAIL_COUNT=%lld FAIL_PROCESS=%d tessera %s\n  %s\n  %s\n",
              static_cast<long long>(after), static_cast<long long>(count), process,
              command.line.c_str(), wrong.c_str(), result.stderr_text.c_str());
  std::fflush(stdout);
  return false;
}

/// Records the expected outcome of each command and the number of its allocations.
void measure(Bench& bench, std::vector<Command>& all) {
  for (Command& command : all) {
    const std::string counted = bench.folder().parent_path() / "count";
    const SpawnResult result =
        bench.run(command.line, {"LD_PRELOAD=" FAILING_MALLOC, "COUNT_FILE=" + counted});
    command.wanted = outcome(command, bench, result);
    command.allocations = std::stoll("0" + tessera::testing::contents(counted));
    if (command.num_processes > 0) command.allocations = all[0].allocations;  // of each process
    std::printf("%7lld allocations: tessera %s\n", static_cast<long long>(command.allocations),
                command.line.c_str());
    if (command.allocations == 0 || (command.trains && result.exit_code != 0))
      throw std::runtime_error(result.stderr_text);
  }
}

int check_all(Bench& bench, const std::vector<Command>& all) {
  std::int64_t cases = 0;
  std::int64_t bad = 0;
  for (const Command& command : all) {
    for (int process = 0; process <= command.num_processes; ++process) {
      for (std::int64_t i = 0; i < command.allocations; ++i) {
        ++cases;
        if (!check(bench, command, i, 1, process)) ++bad;
      }
    }
  }
  std::printf("%lld cases, %lld bad\n", static_cast<long long>(cases), static_cast<long long>(bad));
  return bad == 0 ? 0 : 1;
}

bool check_sample(Bench& bench, const std::vector<Command>& all, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const Command& command = all[random() % all.size()];
  const auto after =
      static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(command.allocations));
  const std::int64_t counts[] = {1, 1, 2, 10, 1'000'000'000};
  const std::int64_t count = counts[random() % std::size(counts)];
  const int process =
      static_cast<int>(random() % (static_cast<std::uint64_t>(command.num_processes) + 1));
  return check(bench, command, after, count, process);
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench;
  std::vector<Command> all = commands();
  measure(bench, all);
  if (argc == 2 && std::string_view(argv[1]) == "--all") return check_all(bench, all);
  const tessera::fuzz::RunOptions options =
      tessera::fuzz::read_options("faults_allocations", argc, argv, {.seed = 1, .cases = 200});
  int bad = 0;
  tessera::fuzz::run_cases("faults_allocations", options, 120, [&](std::uint64_t seed) {
    if (!check_sample(bench, all, seed)) ++bad;
    return true;
  });
  std::printf("%d of %d cases are bad\n", bad, options.cases);
  return bad == 0 ? 0 : 1;
}
