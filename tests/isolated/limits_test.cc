// Processes check that the machine has what they need before they run.
#include <gtest/gtest.h>
#include <regex>
#include <sys/resource.h>

#include <tessera/jit.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"
#include "tests/isolated/reports.h"

namespace tessera::testing {
namespace {

class IsolatedErrors : public ReportedRuns {};

TEST_F(IsolatedErrors, TheMemoryOfAllProcessesCounts) {
  const std::string line = line_of(8);
  const int code = run({.num_processes = 2, .timeout_s = 20}, [] {
    const use_mesh scope(make_mesh({{"data", 2}}));
    const auto f = jit(
        [](Array x) {
          return broadcast_to(sum(x), {1 << 20, 1 << 20});
        },
        {.out_shardings = {P{"data"}}});
    f(device_put(ones({4}), P{"data"}));
  });
  EXPECT_EQ(code, 3);  // the exit code of ReportingProgram for errors other than faults
  for (const char* rank : {"0", "1"}) {
    const std::string text =
        std::regex_replace(report(rank), std::regex("at most [0-9.]+ [MG]iB"), "at most <free>");
    EXPECT_EQ(text,
              "the program needs more memory than this machine has left\n"
              "  where:  " +
                  line +
                  "\n"
                  "  found:  4096.0 GiB in all processes, 2048.0 GiB in this one\n"
                  "  wanted: at most <free>, the free memory\n"
                  "  cure:   use a smaller batch or a smaller model, or end other programs; to run "
                  "it anyway, allow overcommit: --allow-overcommit, or set_overcommit(true)");
  }
}

TEST_F(IsolatedErrors, MoreSocketsThanAProcessMayHave) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{.rlim_cur = 500, .rlim_max = 500};
    setrlimit(RLIMIT_NOFILE, &limit);
    ReportingProgram program([] {});
    const Caught error = caught([&] { run_isolated(program, {.num_processes = 64}); });
    const std::string wanted =
        "one process per device: the processes need more sockets than the limit on open files "
        "allows\n"
        "  where:  <this line>\n"
        "  found:  64 processes, which need 1344 files\n"
        "  wanted: at most 500, the hard limit on open files\n"
        "  cure:   use fewer devices, or raise the limit (ulimit -Hn)";
    if (error.text != wanted) std::fprintf(stderr, "%s\n", error.text.c_str());
    _exit(error.text == wanted ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(IsolatedErrors, ManyProcessesTakeFewSocketsAtOnce) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{.rlim_cur = 100, .rlim_max = 500};
    setrlimit(RLIMIT_NOFILE, &limit);
    const int code = run({.num_processes = 32, .timeout_s = 60}, [] {
      if (process_allgather(process_index()).back() != 31) throw std::logic_error("other values");
    });
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(IsolatedErrors, ExceptionsOfAnyType) {
  const int code = run({.num_processes = 2, .timeout_s = 20}, [] { throw 42; });
  EXPECT_EQ(code, 2);  // the exit code of ReportingProgram for faults
  for (const char* rank : {"0", "1"})
    EXPECT_EQ(report(rank), "an exception that is not a std::exception");
  EXPECT_EQ(report("parent"), "") << "a signal has ended a process";
}

// Either process may be the first to notice it.
TEST_F(IsolatedErrors, ProcessesThatMakeDifferentCalls) {
  const int code = run({.num_processes = 2, .timeout_s = 20}, [] {
    const use_mesh scope(make_mesh({{"data", 2}}));
    const Array x = device_put(ones({8}), P{"data"});
    const auto f = jit([](Array y) { return y - mean(y); });
    if (process_index() == 1) {
      f(x);
      f(x);
    } else {
      for (int i = 0; i < 3; ++i) f(x).to_vector<float>();
    }
  });
  EXPECT_EQ(code, 2);
  const std::regex at_second(
      "rank 1 has diverged: it and rank 0 made different calls: it is in [^;]+ [0-9]+ \\(.*\\); "
      "rank 0 is in [^;]+ [0-9]+ \\(.*\\)");
  const std::regex at_first("rank 1 has diverged: it .*; rank 0 noticed it in .*");
  for (const char* rank : {"0", "1"}) {
    const std::string text = report(rank);
    EXPECT_TRUE(std::regex_match(text, at_second) || std::regex_match(text, at_first) ||
                text.find("rank 1 was told by rank 0") != std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace tessera::testing
