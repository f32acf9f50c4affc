// The watch kills a launcher that keeps running after its processes have ended because of a fault,
// and kills nothing else.
#include "run/transport/mpi/end_watch.h"

#include <array>
#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace tessera::run {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTime{200};
constexpr milliseconds kNever{60000};
enum class Ends { by_a_fault, as_planned, after_leaving_the_watch };

[[noreturn]] void be_a_rank(Ends how) {
  const EndWatch::Limit stopped{.time = kNever, .report = [] {}};
  const EndWatch::Limit idle{.time = kTime, .report = [] { dprintf(STDERR_FILENO, "killed\n"); }};
  {
    EndWatch watch(stopped, idle);
    if (how == Ends::by_a_fault) _exit(2);
    if (how == Ends::as_planned) watch.begin();
  }
  _exit(0);
}

struct Launcher {
  const char* name = "mpirun.openmpi";
  Ends how = Ends::by_a_fault;
  milliseconds second_rank{0};  // how long it runs; 0: there is none
};

[[noreturn]] void be_a_launcher(const Launcher& launcher, int error) {
  dup2(error, STDERR_FILENO);
  prctl(PR_SET_NAME, launcher.name);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (fork() == 0) be_a_rank(launcher.how);
  if (launcher.second_rank > milliseconds(0) && fork() == 0) {
    std::this_thread::sleep_for(launcher.second_rank);
    _exit(0);
  }
  while (true) pause();  // never waits for its children, so both stay zombies
}

struct Outcome {
  bool is_killed = false;
  milliseconds after{0};
  std::string error;
};

/// What happens to the launcher within a second.
Outcome outcome_of(const Launcher& launcher) {
  std::array<int, 2> error{};
  EXPECT_EQ(pipe(error.data()), 0);
  const auto start = std::chrono::steady_clock::now();
  const auto time = [&] {
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
  };
  const pid_t pid = fork();
  if (pid == 0) be_a_launcher(launcher, error[1]);
  close(error[1]);
  Outcome outcome;
  int status = 0;
  while (!outcome.is_killed && time() < milliseconds(1000)) {
    outcome.is_killed = waitpid(pid, &status, WNOHANG) == pid;
    std::this_thread::sleep_for(milliseconds(5));
  }
  outcome.after = time();
  if (!outcome.is_killed) {
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
  }
  char byte = 0;
  while (read(error[0], &byte, 1) == 1) outcome.error += byte;  // until the watch has ended too
  close(error[0]);
  return outcome;
}

TEST(EndWatch, KillsALauncherThatStays) {
  const Outcome outcome = outcome_of({});
  EXPECT_TRUE(outcome.is_killed);
  EXPECT_GE(outcome.after, kTime);
  EXPECT_EQ(outcome.error, "killed\n");
}

TEST(EndWatch, WaitsForTheOtherProcessesOfTheLauncher) {
  const Outcome outcome = outcome_of({.second_rank = milliseconds(300)});
  EXPECT_TRUE(outcome.is_killed);
  EXPECT_GE(outcome.after, milliseconds(300) + kTime / 2);
}

TEST(EndWatch, LeavesOtherParentsAlone) {
  const Outcome outcome = outcome_of({.name = "bash"});
  EXPECT_FALSE(outcome.is_killed);
  EXPECT_EQ(outcome.error, "");
}

TEST(EndWatch, LeavesTheLauncherAloneWithoutAFault) {
  for (const Ends how : {Ends::as_planned, Ends::after_leaving_the_watch}) {
    EXPECT_FALSE(outcome_of({.how = how}).is_killed);
  }
}

}  // namespace
}  // namespace tessera::run
