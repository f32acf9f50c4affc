// Programs whose standard streams are closed, full or not read: only what is printed may differ.
#include <thread>

#include "tests/faults/support.h"
#include "tools/cli/waiting.h"

namespace tessera::testing {
namespace {

const std::string kMlp = "train mlp --depth 8 --layers 2 --batch 4 --progress off --threads 1 ";
const std::string kSaves = "--steps 12 --every 1 --log-every 1 --checkpoint run --json run.json ";

class Streams : public FaultTest {};

/// All combinations of closed streams. They change only what is printed.
TEST_F(Streams, ClosedOnesAreNotTakenByFiles) {
  const std::vector<std::string> closed = {"<&-",      ">&-",      "2>&-",        "<&- >&-",
                                           "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"};
  const std::vector<std::string> meshes = {"--mesh none ", "--mesh data=2,model=1 --isolated "};
  for (const std::string& mesh : meshes) {
    const Ended open = tessera(kMlp + mesh + kSaves);
    ASSERT_EQ(open.exit_code, 0) << open.err;
    const std::string hash = object("run.json")["params_hash"];
    const std::vector<std::string> steps = whole_steps("run");
    EXPECT_EQ(steps.size(), 12U);
    for (const std::string& streams : closed) {
      SCOPED_TRACE(mesh + streams);
      shell("rm -r run run.json board 2>/dev/null");
      const Ended run = tessera(kMlp + mesh + kSaves + "--tensorboard board " + streams);
      EXPECT_EQ(run.exit_code, 0) << run.err;
      EXPECT_EQ(whole_steps("run"), steps);
      EXPECT_EQ(object("run.json")["params_hash"], hash);
    }
    shell("rm -r run run.json");
  }
}

TEST_F(Streams, ClosedOnesOfTheCompilersProgram) {
  const Ended run = shell("\"$TESSERA_OPT\" --list >&- <&- && echo done");
  EXPECT_EQ(run.out, "done\n") << run.err;
}

/// A write to standard output that fails is reported with its reason.
TEST_F(Streams, AFullDeviceIsAFault) {
  ASSERT_EQ(tessera(kMlp + "--mesh none --steps 1 --checkpoint run").exit_code, 0);
  const std::vector<std::string> commands = {"--help",
                                             "--version",
                                             "train --help",
                                             "show mlp --mesh none",
                                             "show mlp --mesh none --what ir --json -",
                                             "schedule GPipe --format csv",
                                             "schedule GPipe --format json",
                                             "schedule GPipe --stages 16 --microbatches 64",
                                             "checkpoint ls run",
                                             "checkpoint ls run/step_00000001",
                                             "checkpoint verify run",
                                             "checkpoint convert run exported",
                                             "devices",
                                             "reshard --mesh a=2 --shape 4 --from a",
                                             kMlp + "--mesh none --steps 1",
                                             kMlp + "--mesh none --steps 1 --json -"};
  for (const std::string& command : commands) {
    const Ended run = tessera(command + " >/dev/full");
    EXPECT_EQ(run.exit_code, 2) << command;
    EXPECT_EQ(run.err, "tessera: fault: cannot write to standard output: No space left on device\n")
        << command;
  }
  const Ended opt = shell("\"$TESSERA_OPT\" --list >/dev/full");
  EXPECT_EQ(opt.exit_code, 2);
}

/// A training run completes even if its output cannot be printed.
TEST_F(Streams, TrainingGoesOnWhereLinesAreLost) {
  const Ended run = tessera(kMlp + "--mesh none " + kSaves + ">/dev/full");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(whole_steps("run").size(), 12U);
  EXPECT_EQ(object("run.json")["losses"].size(), 12U);
}

/// A reader that stops reading ends the program by SIGPIPE, without a message, as with other tools.
TEST_F(Streams, AReaderThatLeavesEndsQuietly) {
  const std::string codes = "; echo ${PIPESTATUS[0]} >code";
  const std::string long_text = "schedule GPipe --stages 64 --microbatches 256";
  // The printed schedule is longer than the buffer of a pipe.
  shell("\"$TESSERA\" " + long_text + " | head -c 1 >head" + codes);
  EXPECT_EQ(text("code"), "141\n");
  EXPECT_EQ(text("err"), "");
  // The same if SIGPIPE is ignored, as under some supervisors.
  shell("trap '' PIPE; \"$TESSERA\" " + long_text + " | head -c 1 >head" + codes);
  EXPECT_EQ(text("code"), "141\n");
  EXPECT_EQ(text("err"), "");
}

/// A run saves its state when its reader closes the pipe, with one process or with several.
TEST_F(Streams, TrainingSavesWhenItsReaderLeaves) {
  for (const std::string mesh : {"--mesh none ", "--mesh data=2,model=1 --isolated "}) {
    shell("\"$TESSERA\" " + kMlp + mesh + "--steps 1000000 --log-every 1 --checkpoint run " +
          "| head -n 5 >head; echo ${PIPESTATUS[0]} >code");
    EXPECT_EQ(text("code"), "141\n") << mesh;
    EXPECT_EQ(text("err"), "") << mesh;
    EXPECT_EQ(whole_steps("run").size(), 1U) << mesh;
    shell("rm -r run");
  }
}

/// A report replaces the old one only when it is complete.
TEST_F(Streams, AReportThatCannotBeWrittenLeavesTheOldOne) {
  const std::string command = kMlp + "--mesh none --steps 300 --json ";
  ASSERT_EQ(tessera(command + "run.json").exit_code, 0);
  const std::string before = text("run.json");
  ASSERT_GT(before.size(), 4096U);
  const Ended run = shell("ulimit -f 1; \"$TESSERA\" " + command + "run.json");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(run.err.find("fault: --json: cannot write"), std::string::npos) << run.err;
  EXPECT_EQ(text("run.json"), before);
  EXPECT_EQ(names("."), (std::vector<std::string>{"err", "out", "run.json"}));
}

/// The error tells why a picture cannot be written.
TEST_F(Streams, APictureThatCannotBeWrittenLeavesTheOldOne) {
  ASSERT_EQ(tessera(kMlp + "--mesh none --steps 3 --json run.json").exit_code, 0);
  for (const std::string name : {"loss.svg", "loss.png"}) {
    const std::string command = "plot run.json --out " + name;
    ASSERT_EQ(tessera(command).exit_code, 0);
    const std::string before = text(name);
    const Ended run = shell("ulimit -f 1; \"$TESSERA\" " + command);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.err, "tessera: fault: --out: cannot write " + name + ": File too large\n");
    EXPECT_EQ(text(name), before);
  }
}

/// The permissions and links of the old file stay. If the path is not a regular file, it is written
/// in place.
TEST_F(Streams, AReportKeepsWhatItsPathIs) {
  const std::string command = kMlp + "--mesh none --steps 1 --json ";
  shell("mkdir there; : >there/run.json; chmod 640 there/run.json; ln -s there/run.json link.json");
  ASSERT_EQ(tessera(command + "link.json").exit_code, 0);
  EXPECT_EQ(shell("stat -c %a there/run.json; readlink link.json").out, "640\nthere/run.json\n");
  EXPECT_EQ(object("there/run.json")["name"], "pjit_mlp");
  const Ended piped = shell("mkfifo pipe; cat pipe >copy & \"$TESSERA\" " + command + "pipe; wait");
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_EQ(object("copy")["name"], "pjit_mlp");
  const Ended full = tessera(command + "/dev/full");
  EXPECT_EQ(full.exit_code, 2);
  EXPECT_EQ(full.err, "tessera: fault: --json: cannot write /dev/full: No space left on device\n");
}

/// The same holds for files of arrays.
TEST_F(Streams, AFileOfArraysKeepsWhatItsPathIs) {
  const std::string command = kMlp + "--mesh none --steps 1 --dump ";
  ASSERT_EQ(tessera(command + "want").exit_code, 0);
  shell(
      "mkfifo pipe; cp want there; ln -s there link; cp want from.safetensors; cp want to; ln -s "
      "to import");
  const Ended piped =
      shell("cat pipe >copy & \"$TESSERA\" " + command + "pipe; wait; cmp want copy");
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_EQ(tessera(command + "link").exit_code, 0);
  EXPECT_EQ(tessera("import from.safetensors --to import").exit_code, 0);
  EXPECT_EQ(shell("test -p pipe && readlink link && readlink import").out, "there\nto\n");
}

/// Long work without output reports from time to time that it is going on.
TEST(Waiting, TellsAtLongerAndLongerIntervals) {
  ::testing::internal::CaptureStderr();
  {
    const cli::Waiting waiting("compiling the step", std::chrono::milliseconds(500));
    std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "compiling the step: 0.5 s so far\ncompiling the step: 1 s so far\n");
}

}  // namespace
}  // namespace tessera::testing
