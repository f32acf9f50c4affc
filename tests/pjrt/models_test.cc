// The models of the examples on the devices of a plugin, through the command line.
#include <cmath>
#include <filesystem>
#include <sstream>

#include "tests/pjrt/plugin.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

const std::string kLm =
    "train lm --vocab 50 --seq 12 --d-model 32 --heads 4 --layers 2 --d-ff 48 --batch 12 ";
const std::string kPipeline =
    "train pipeline --batch 8 --microbatches 2 --seq 8 --d-model 16 --heads 2 --layers 4 ";
const std::string kVit =
    "train vit --batch 8 --layers 1 --embed 16 --mlp-dim 16 --heads 2 --patch 16 ";
const std::string kMlp = "train mlp --depth 16 --layers 2 --batch 12 ";

class PjrtModels : public PjrtCommands {
 protected:
  /// Relative. Later losses differ more, because the updates add to the rounding of the first one.
  struct Tolerance {
    double first = 1e-5;
    double fifth = 1e-3;
  };

  void expect_close(const std::string& arguments, Tolerance tolerance) const {
    SCOPED_TRACE(arguments);
    const std::vector<double> wanted = losses(arguments + "--steps 5 ");
    const std::vector<double> found =
        losses(arguments + "--steps 5 --engine " + test_plugin() + " ");
    ASSERT_EQ(wanted.size(), 5U);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double relative = i == 0 ? tolerance.first : tolerance.fifth;
      EXPECT_NEAR(found[i], wanted[i], relative * std::abs(wanted[i])) << "step " << i;
    }
  }
  void expect_close(const std::string& arguments) const { expect_close(arguments, {}); }
};

TEST_F(PjrtModels, HaveTheLossesOfTheHost) {
  expect_close(kLm + "--mesh none ");
  expect_close(kLm + "--mesh data=8 --params fsdp ");
  expect_close(kLm + "--mesh data=3,model=2 ");  // uneven
  expect_close(kVit + "--mesh batch=4,model=2 --dropout 0.1 ");
  expect_close(kMlp + "--mesh data=2,model=2 ");
  expect_close(kPipeline + "--mesh none ");
  expect_close(kPipeline + "--mesh stage=2 ");
  expect_close(kPipeline + "--mesh stage=2,fsdp=4 --schedule ZBV --stages 4 ");
  expect_close(kPipeline + "--mesh stage=4,fsdp=2 --schedule GPipe ");
}

TEST_F(PjrtModels, ComputeInBf16) {
  // A plugin rounds fused steps to bf16 in other places than the host.
  constexpr Tolerance kBf16{.first = 2e-3, .fifth = 5e-3};
  expect_close(kLm + "--mesh data=3,model=2 --dtype bf16 ", kBf16);
  expect_close(kVit + "--mesh batch=4,model=2 --dropout 0.1 --dtype bf16 ", kBf16);
}

TEST_F(PjrtModels, ContinueFromTheCheckpointsOfTheHost) {
  const std::string all = kLm + "--mesh data=4 --params fsdp --every 2 --checkpoint run ";
  ASSERT_EQ(run(all + "--steps 2").exit_code, 0);
  const std::vector<double> found = losses(all + "--steps 4 --resume --engine " + test_plugin());
  fs::remove_all(folder() / "run");
  const std::vector<double> wanted = losses(all + "--steps 4");
  ASSERT_FALSE(found.empty());
  EXPECT_NEAR(found.back(), wanted.back(), 1e-3 * std::abs(wanted.back()));
  // And the other way round: the host reads what the devices have saved.
  const std::vector<double> next = losses(all + "--steps 6 --resume");
  EXPECT_FALSE(next.empty());
}

TEST_F(PjrtModels, ShowTwoMemoryPlans) {
  const CommandOutcome outcome = run_command(
      TESSERA_COMMAND, "show lm --what memory --mesh data=4 --layers 1 --engine " + test_plugin(),
      "", folder());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  std::istringstream text(outcome.stdout_text);
  std::string line;
  std::getline(text, line);
  EXPECT_EQ(line, "bytes per device");
  std::getline(text, line);  // the names of the columns
  std::string name;
  std::int64_t plugin = 0, host = 0;
  ASSERT_TRUE(text >> name >> plugin >> host);
  EXPECT_EQ(name, "arguments");
  EXPECT_GT(plugin, 0);
  EXPECT_EQ(plugin, host);  // tiles of the same sizes
}

TEST_F(PjrtModels, TellWhatADeviceCannotRun) {
  const std::string engine = " --steps 1 --engine " + test_plugin();
  const auto expect_told = [&](const std::string& arguments, const std::string& text) {
    const CommandOutcome outcome = run(arguments + engine);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_NE(outcome.stderr_text.find(text), std::string::npos) << outcome.stderr_text;
  };
  expect_told(kLm + "--mesh data=2 --isolated",
              "the engine pjrt computes for all devices in one process");
  expect_told(kPipeline + "--mesh stage=2 --timeline p.svg",
              "--timeline p.svg: only the host engine times the tasks of a pipeline");
  expect_told(kPipeline + "--mesh stage=2 --schedule auto",
              "--schedule auto: only the host engine times the tasks of a pipeline");
}

TEST(PjrtAborts, AreToldWithTheirCure) {
  const CommandOutcome outcome =
      run_command(TESSERA_COMMAND, "train mlp --steps 1 --engine pjrt:" TESSERA_ABORTING_PLUGIN, "",
                  fs::temp_directory_path());
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.stderr_text,
            "tessera: fault: the PJRT plugin ended the process with abort(); its own output is "
            "above. Saved checkpoints are intact: --resume continues from the last one.\n");
}

}  // namespace
}  // namespace tessera::testing
