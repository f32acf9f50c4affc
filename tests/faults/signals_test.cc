// Signals that end a run: it finishes its step and saves its state. A resumed run gives the same
// bits.
#include <csignal>
#include <random>
#include <thread>

#include "tests/faults/support.h"

namespace tessera::testing {
namespace {

using std::chrono::milliseconds;

struct TrainRun {
  std::string name, words;
};

const std::vector<TrainRun> kRuns = {
    {"one process", "train mlp --depth 8 --layers 2 --batch 4 --mesh none "},
    {"a mesh",
     "train lm --vocab 32 --seq 8 --d-model 16 --heads 2 --layers 1 --d-ff 16 --batch 4 "
     "--mesh data=2 "},
    {"isolated", "train mlp --depth 8 --layers 2 --batch 4 --mesh data=2,model=2 --isolated "},
    {"isolated, nothing sent",
     "train mlp --depth 8 --layers 1 --batch 3 --mesh data=2,model=1 "
     "--params replicated --isolated "},
    {"pipeline",
     "train pipeline --seq 4 --d-model 16 --heads 2 --layers 2 --batch 4 "
     "--microbatches 2 --mesh stage=2,fsdp=1 "},
    {"pipeline, isolated",
     "train pipeline --seq 4 --d-model 16 --heads 2 --layers 2 --batch 4 "
     "--microbatches 2 --mesh stage=2,fsdp=1 --isolated "}};
const std::string kCommon = "--progress off --threads 1 --log-every 1 --checkpoint saved ";

/// Which processes receive a signal.
enum class To { process, group, both, child };

class Signals : public FaultTest {
 protected:
  static void send(const RunningCommand& run, To to, int signal) {
    if (to == To::process || to == To::both) kill(run.pid(), signal);
    if (to == To::group || to == To::both) kill(-run.pid(), signal);
    const std::vector<pid_t> children = run.children();
    if (to == To::child) kill(children.empty() ? run.pid() : children.back(), signal);
  }

  /// Ends a run by a signal at a random time in its first steps. Returns the number of saved steps.
  std::int64_t interrupt(const TrainRun& run, To to, int signal, std::mt19937& random) const {
    shell("rm -rf saved");
    RunningCommand command(run.words + kCommon + "--steps 1000000", path(""));
    EXPECT_TRUE(command.has_written("step 000" + std::to_string(random() % 10))) << text("err");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    send(command, to, signal);
    const Ended ended = command.wait();
    EXPECT_EQ(ended.signal, signal) << ended.err;
    EXPECT_EQ(ended.err, "");
    const std::vector<std::string> steps = whole_steps("saved");
    EXPECT_EQ(steps.size(), 1U);
    if (steps.size() != 1) return 0;
    const std::int64_t done = std::stoll(steps[0].substr(5));
    const std::string name = signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGHUP";
    const std::string end = "stopped    by " + name + " after " + std::to_string(done) +
                            " of 1000000 steps\nsaved      saved/" + steps[0] + "\n";
    EXPECT_TRUE(ended.out.ends_with(end)) << ended.out.substr(ended.out.size() / 2);
    return done;
  }
};

TEST_F(Signals, ARunSavesAndGoesOnToTheSameBits) {
  constexpr unsigned kSeed = 1;
  std::mt19937 random(kSeed);
  const std::vector<std::pair<To, int>> ways = {
      {To::process, SIGTERM}, {To::group, SIGINT}, {To::both, SIGTERM}, {To::child, SIGHUP}};
  for (std::size_t i = 0; i < 2 * kRuns.size(); ++i) {
    const TrainRun& run = kRuns[i / 2];
    const std::size_t way = random() % ways.size();
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", run " + std::to_string(i) + ", " + run.name +
                 ", way " + std::to_string(way));
    const std::int64_t done = interrupt(run, ways[way].first, ways[way].second, random);
    ASSERT_GT(done, 0);
    const std::string steps = "--steps " + std::to_string(done + 3) + " ";
    const Ended resumed = tessera(run.words + kCommon + steps + "--resume --json resumed.json");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    shell("rm -rf saved");
    const Ended whole = tessera(run.words + kCommon + steps + "--json whole.json");
    EXPECT_EQ(whole.exit_code, 0) << whole.err;
    EXPECT_EQ(object("resumed.json")["params_hash"], object("whole.json")["params_hash"]);
  }
}

/// timeout(1) sends the signal both to the process and to its group.
TEST_F(Signals, TimeoutSaves) {
  for (const std::size_t i : {0U, 2U}) {
    const Ended ended =
        shell("timeout 3 \"$TESSERA\" " + kRuns[i].words + kCommon + "--steps 100000000");
    EXPECT_EQ(ended.exit_code, 124) << ended.err;
    EXPECT_EQ(ended.err, "");
    EXPECT_EQ(whole_steps("saved").size(), 1U);
    shell("rm -rf saved");
  }
}

/// The second signal must not wait for the end of the step, which takes seconds on this engine.
TEST_F(Signals, ASecondOneEndsAtOnce) {
  for (const std::string mesh : {"--mesh none ", "--mesh data=2,model=1 --isolated "}) {
    SCOPED_TRACE(mesh);
    RunningCommand command(
        "train mlp --depth 768 --layers 1 --batch 1024 --steps 1000 --engine reference " + kCommon +
            mesh,
        path(""));
    ASSERT_TRUE(command.has_written("step 0000"));
    std::this_thread::sleep_for(milliseconds(100));  // the next step has begun
    kill(command.pid(), SIGINT);
    std::this_thread::sleep_for(milliseconds(300));
    const auto begin = std::chrono::steady_clock::now();
    kill(command.pid(), SIGTERM);
    EXPECT_EQ(command.wait().signal, SIGTERM);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    EXPECT_EQ(names("saved").size(), 0U);
    // The processes of the devices end with the first one.
    for (int i = 0; i < 1000 && kill(-command.pid(), 0) == 0; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    EXPECT_NE(kill(-command.pid(), 0), 0);
  }
}

TEST_F(Signals, WithoutACheckpointItSaysSo) {
  RunningCommand command(
      "train mlp --depth 8 --layers 1 --batch 4 --mesh none --progress off --log-every 1 "
      "--steps 100000000 --json run.json",
      path(""));
  ASSERT_TRUE(command.has_written("step 0003"));
  kill(command.pid(), SIGTERM);
  const Ended ended = command.wait();
  EXPECT_EQ(ended.signal, SIGTERM);
  EXPECT_NE(ended.out.find(" of 100000000 steps; nothing is saved without --checkpoint\n"),
            std::string::npos);
  EXPECT_EQ(names("."), (std::vector<std::string>{"err", "out"}));
}

/// Signals that nohup or a shell told the program to ignore stay ignored.
TEST_F(Signals, IgnoredOnesStaySo) {
  const Ended ended = shell("trap '' INT HUP; \"$TESSERA\" " + kRuns[0].words + kCommon +
                            "--steps 2000 & sleep 0.3; kill -INT $!; kill -HUP $!; wait $!");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(whole_steps("saved"), std::vector<std::string>{"step_00002000"});
}

}  // namespace
}  // namespace tessera::testing
