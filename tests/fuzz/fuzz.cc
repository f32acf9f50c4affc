// tessera_fuzz [--seed S] [--cases N] [--seconds T]
//
// Random programs on random meshes give the same bits as on one device. Case i has seed S + i, so
// `--seed <its seed> --cases 1` repeats it alone. Exit code 1: a case failed, or too little was
// covered.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>

#include "ops/record.h"
#include "partition/moves.h"
#include "tests/fuzz/check.h"

namespace {

using tessera::fuzz::Case;
using tessera::fuzz::Coverage;

constexpr int kCasesToJudge = 200;  // fewer say nothing about coverage
constexpr unsigned kSecondsPerCase = 120;

struct Options {
  std::uint64_t seed = 1;
  int cases = 1000;
  double seconds = 1e9;
};

char case_text[128];  // what a crash prints

extern "C" void report_crash(int signal) {
  const char* what = signal == SIGALRM ? "hangs: " : "crashes: ";
  // Nothing can be done where standard error is gone.
  if (write(STDERR_FILENO, what, std::strlen(what)) >= 0 &&
      write(STDERR_FILENO, case_text, std::strlen(case_text)) >= 0) {
    _exit(1);
  }
  _exit(2);
}

void watch_for_crashes() {
  for (int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL, SIGALRM}) {
    std::signal(signal, report_crash);
  }
}

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    const bool is_known = flag == "--seed" || flag == "--cases" || flag == "--seconds";
    if (!is_known || value == nullptr) {
      fmt::print(stderr, "tessera_fuzz: {} is no flag with a value\n", flag);
      fmt::print(stderr, "usage: tessera_fuzz [--seed S] [--cases N] [--seconds T]\n");
      std::exit(2);
    }
    if (flag == "--seed") options.seed = std::strtoull(value, nullptr, 10);
    if (flag == "--cases") options.cases = static_cast<int>(std::strtol(value, nullptr, 10));
    if (flag == "--seconds") options.seconds = std::strtod(value, nullptr);
    ++i;
  }
  return options;
}

void print_counts(const char* title, const std::map<std::string, int>& counts) {
  fmt::print("{}:", title);
  for (const auto& [name, count] : counts) fmt::print(" {}={}", name, count);
  fmt::print("\n");
}

/// Prints what was covered and whether it was enough.
bool is_covered(const Coverage& coverage) {
  fmt::print("cases {}: communicating {}, uneven {}, with empty shards {}, donating {}\n",
             coverage.cases, coverage.communicating, coverage.uneven, coverage.empty,
             coverage.donating);
  fmt::print("cases compared with the reference bit by bit: {}\n", coverage.against_reference);
  print_counts("ops", coverage.ops);
  print_counts("collectives", coverage.collectives);
  if (coverage.cases < kCasesToJudge) return true;
  bool is_enough = true;
  for (const tessera::ops::OpRecord* op : tessera::ops::all_ops()) {
    const bool is_collective = tessera::partition::kind_of(*op).has_value();
    const auto& counts = is_collective ? coverage.collectives : coverage.ops;
    if (counts.contains(*op->name)) continue;
    fmt::print("FAILED: no case used {}\n", *op->name);
    is_enough = false;
  }
  if (2 * coverage.communicating < coverage.cases) {
    fmt::print("FAILED: fewer than half of the cases communicate\n");
    is_enough = false;
  }
  return is_enough;
}

void report(const Case& failing, const tessera::fuzz::Failure& failure) {
  fmt::print("FAILED, seed {}: not so: {}\n{}\n", failing.seed, failure.rule, failure.detail);
  const auto recheck = [](const Case& c) { return tessera::fuzz::check(c); };
  const Case small = tessera::fuzz::minimised(failing, failure.rule, recheck, 20.0);
  const auto again = recheck(small);
  fmt::print("\nminimised: {}\n{}\nrepeat with: tessera_fuzz --seed {} --cases 1\n",
             again ? again->detail : failure.detail, tessera::fuzz::to_string(small), failing.seed);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  fmt::print("tessera_fuzz --seed {} --cases {}\n", options.seed, options.cases);
  watch_for_crashes();
  Coverage coverage;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < options.cases; ++i) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (passed.count() > options.seconds) break;
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(i);
    fmt::format_to_n(case_text, sizeof(case_text) - 1, "tessera_fuzz --seed {} --cases 1\n", seed);
    alarm(kSecondsPerCase);
    const Case c = tessera::fuzz::make_case(seed);
    const auto failure = tessera::fuzz::check(c, &coverage);
    if (!failure) continue;
    report(c, *failure);
    return 1;
  }
  return is_covered(coverage) ? 0 : 1;
}
