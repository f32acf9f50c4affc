// The same command line serves the first start, restarts after a kill, and restarts when all steps
// are done.
#include "tests/faults/support.h"

namespace tessera::testing {
namespace {

class Resume : public FaultTest {};

struct TrainRun {
  std::string name, words;
};

TEST_F(Resume, ARunThatHasAllItsStepsReportsAgain) {
  shell("seq 1 400 >text");
  const std::vector<TrainRun> runs = {
      {"mlp", "train mlp --depth 8 --layers 2 --batch 4 --mesh none --steps 4 "},
      {"mlp isolated",
       "train mlp --depth 8 --layers 2 --batch 4 --mesh data=2,model=2 --isolated "
       "--steps 4 "},
      {"lm",
       "train lm --text text --seq 8 --d-model 16 --heads 2 --layers 1 --d-ff 16 --batch 4 "
       "--mesh data=2 --steps 4 --sample 8 "},
      {"pipeline",
       "train pipeline --seq 4 --d-model 16 --heads 2 --layers 2 --batch 4 "
       "--microbatches 2 --mesh stage=2,fsdp=1 --steps 4 --timeline step.svg "
       "--profile profile "}};
  for (const TrainRun& run : runs) {
    SCOPED_TRACE(run.name);
    shell("rm -rf saved report.json");
    const std::string words =
        run.words + "--progress off --threads 1 --checkpoint saved --resume --json report.json";
    const Ended first = tessera(words);
    ASSERT_EQ(first.exit_code, 0) << first.err;
    const nlohmann::json want = object("report.json");
    EXPECT_EQ(want["first_step"], 0);
    const Ended kept = tessera(words);
    EXPECT_EQ(kept.exit_code, 0) << kept.err;
    EXPECT_EQ(object("report.json"), want);
    EXPECT_NE(kept.out.find("\nkept       report.json: "), std::string::npos) << kept.out;
    shell("rm report.json");
    const Ended again = tessera(words);
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(again.err, "");
    const nlohmann::json found = object("report.json");
    EXPECT_EQ(found["params_hash"], want["params_hash"]);
    EXPECT_EQ(found.value("held_out_loss", 0.0), want.value("held_out_loss", 0.0));
    EXPECT_EQ(found["first_step"], 3);
    ASSERT_EQ(found["losses"].size(), 1U);
    EXPECT_EQ(found["losses"][0], want["losses"][3]);
    EXPECT_EQ(found["loss_bits"][0], want["loss_bits"][3]);
    EXPECT_EQ(whole_steps("saved"), std::vector<std::string>{"step_00000004"});
  }
}

const std::string kMlp =
    "train mlp --depth 8 --layers 2 --batch 4 --mesh none --progress off --threads 1 "
    "--checkpoint saved ";

/// The report of a continued run says which steps it has. A report of other parameters is replaced.
TEST_F(Resume, AReportBeginsWithTheFirstStepOfItsRun) {
  ASSERT_EQ(tessera(kMlp + "--steps 4 --json report.json").exit_code, 0);
  ASSERT_EQ(tessera(kMlp + "--steps 6 --resume --json report.json").exit_code, 0);
  const nlohmann::json report = object("report.json");
  EXPECT_EQ(report["first_step"], 4);
  EXPECT_EQ(report["losses"].size(), 2U);
  shell("sed -i s/params_hash/other_hash/ report.json");
  ASSERT_EQ(tessera(kMlp + "--steps 6 --resume --json report.json").exit_code, 0);
  EXPECT_EQ(object("report.json")["losses"].size(), 1U);
}

/// The grains determine the bits of every sum, so a run must not resume with others.
TEST_F(Resume, OtherGrainsAreRefused) {
  ASSERT_EQ(tessera(kMlp + "--steps 2").exit_code, 0);
  const Ended run = tessera(kMlp + "--steps 4 --resume --grains 4");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.err,
            "tessera: --grains: the checkpoint was trained with a different number\n"
            "  found:  saved/step_00000002 with --grains 8, and --grains 4 now\n"
            "  wanted: the same number throughout the run: it affects every sum\n"
            "  cure:   write --grains 8, or start a new run\n");
}

/// The gradients that wait for an update would be averaged with the wrong weights.
TEST_F(Resume, AnotherNumberOfAccumulatedGradientsIsRefused) {
  ASSERT_EQ(tessera(kMlp + "--steps 6 --accumulate 2").exit_code, 0);
  const Ended run = tessera(kMlp + "--steps 8 --resume --accumulate 4");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(
      run.err,
      "tessera: --accumulate: the checkpoint was trained with a different number\n"
      "  found:  saved/step_00000006 with --accumulate 2, and --accumulate 4 now\n"
      "  wanted: the same number throughout the run: updates are counted in it, and gradients "
      "may be waiting for the next one\n"
      "  cure:   write --accumulate 2, or start a new run\n");
}

TEST_F(Resume, OtherFlagsThatChangeNumbersAreTold) {
  ASSERT_EQ(tessera(kMlp + "--steps 2").exit_code, 0);
  shell("mv saved begun");
  struct Change {
    std::string flag, before, now;
  };
  const std::vector<Change> changes = {
      {"--dtype bf16", "dtype \"f32\"", "dtype \"bf16\""},
      {"--numerics fast", "numerics \"exact\"", "numerics \"fast\""},
      {"--seed 5", "seed 0", "seed 5"},
      {"--lr 0.5",
       R"(optimizer {"accumulate":1,"lr":0.001,"lr_schedule":"constant","name":"adam"})",
       R"(optimizer {"accumulate":1,"lr":0.5,"lr_schedule":"constant","name":"adam"})"}};
  for (const Change& change : changes) {
    shell("rm -rf saved; cp -r begun saved");
    const Ended run = tessera(kMlp + "--steps 4 --resume " + change.flag);
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_EQ(
        run.err,
        "tessera: note: the flags differ from those of saved/step_00000002: the results are no "
        "longer those of that run\n  before: " +
            change.before + "\n  now:    " + change.now + "\n");
  }
}

/// What an optimiser stores is part of the checkpoint, so a run cannot continue with another one.
TEST_F(Resume, OtherStatesOfTheOptimizerAreRefused) {
  ASSERT_EQ(tessera(kMlp + "--steps 2").exit_code, 0);
  struct Change {
    std::string flags, before, now;
  };
  const std::vector<Change> changes = {
      {"--optimizer sgd", "--optimizer adam", "--optimizer sgd"},
      {"--optimizer momentum --clip 1", "no --clip, --optimizer adam",
       "--clip 1.0, --optimizer momentum"}};
  for (const Change& change : changes) {
    const Ended run = tessera(kMlp + "--steps 4 --resume " + change.flags);
    EXPECT_EQ(run.exit_code, 1);
    const std::string error =
        "tessera: --resume: the checkpoint has the state of another optimiser\n"
        "  found:  saved/step_00000002: " +
        change.before +
        "\n"
        "  wanted: " +
        change.now +
        "\n"
        "  cure:   use the optimiser flags of the checkpoint, or choose another folder\n";
    EXPECT_NE(run.err.find(error), std::string::npos) << run.err;
  }
}

TEST_F(Resume, TheSameFlagsAreNotTold) {
  ASSERT_EQ(tessera(kMlp + "--steps 2").exit_code, 0);
  const Ended run = tessera(kMlp + "--steps 4 --resume");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, "");
}

}  // namespace
}  // namespace tessera::testing
