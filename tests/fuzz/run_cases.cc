#include "tests/fuzz/run_cases.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

#include "base/sanitized.h"

namespace tessera::fuzz {

namespace {

char case_text[128];  // what a crash prints

extern "C" void report_crash(int signal) {
  const char* what = signal == SIGALRM ? "hangs: " : "crashes: ";
  // If standard error is closed, nothing can be done.
  if (write(STDERR_FILENO, what, std::strlen(what)) >= 0 &&
      write(STDERR_FILENO, case_text, std::strlen(case_text)) >= 0) {
    _exit(1);
  }
  _exit(2);
}

}  // namespace

RunOptions read_options(const char* program, int argc, char** argv, RunOptions defaults) {
  RunOptions options = defaults;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    const bool is_known = flag == "--seed" || flag == "--cases" || flag == "--seconds";
    if (!is_known || value == nullptr) {
      fmt::print(stderr, "{}: {} is no flag with a value\n", program, flag);
      fmt::print(stderr, "usage: {} [--seed S] [--cases N] [--seconds T]\n", program);
      std::exit(2);
    }
    if (flag == "--seed") options.seed = std::strtoull(value, nullptr, 10);
    if (flag == "--cases") options.cases = static_cast<int>(std::strtol(value, nullptr, 10));
    if (flag == "--seconds") options.seconds = std::strtod(value, nullptr);
  }
  return options;
}

bool run_cases(const char* program, const RunOptions& options, unsigned seconds_per_case,
               const std::function<bool(std::uint64_t)>& check) {
  fmt::print("{} --seed {} --cases {}\n", program, options.seed, options.cases);
  for (int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL, SIGALRM}) {
    std::signal(signal, report_crash);
  }
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < options.cases; ++i) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (passed.count() > options.seconds) break;
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(i);
    fmt::format_to_n(case_text, sizeof(case_text) - 1, "{} --seed {} --cases 1\n", program, seed);
    alarm(seconds_per_case);
    const bool is_good = check(seed);
    alarm(0);
    if (is_good) continue;
    fmt::print("repeat with: {}", case_text);
    return false;
  }
  return true;
}

void limit_memory(std::uint64_t bytes) {
  if (kIsSanitized) return;
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
}

}  // namespace tessera::fuzz
