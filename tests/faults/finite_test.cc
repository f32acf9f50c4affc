// Losses and states that are not finite: they stop a run and never replace the last finite state.
#include <cmath>

#include "tests/faults/support.h"

namespace tessera::testing {
namespace {

class Finite : public FaultTest {
 protected:
  /// A run whose numbers overflow within a few steps.
  static std::string words(const std::string& mesh) {
    return "train mlp --depth 8 --layers 2 --batch 4 --progress off --threads 1 --log-every 1 "
           "--optimizer sgd --checkpoint run --every 1 --keep 2 " +
           mesh;
  }
  /// Runs steps 1 to 3 and keeps the last two.
  void begin(const std::string& mesh) const {
    shell("rm -rf run");
    const Ended run = tessera(words(mesh) + "--steps 3 --lr 1e-3");
    ASSERT_EQ(run.exit_code, 0) << run.err;
    ASSERT_EQ(whole_steps("run"), kGood);
  }

  const std::vector<std::string> kGood = {"step_00000002", "step_00000003"};
};

const std::vector<std::string> kMeshes = {"--mesh none ", "--mesh data=2,model=2 ",
                                          "--mesh data=2,model=1 --isolated "};

TEST_F(Finite, ARunStopsAndKeepsItsLastGoodState) {
  for (const std::string& mesh : kMeshes) {
    SCOPED_TRACE(mesh);
    begin(mesh);
    const Ended run = tessera(words(mesh) + "--resume --steps 10 --lr 9e29");
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_TRUE(run.err.find("is not finite\n") != std::string::npos) << run.err;
    EXPECT_NE(run.err.find("is not finite, first in params/"), std::string::npos) << run.err;
    const std::string good = "the last good state is run/step_0000000";
    ASSERT_NE(run.err.find(good), std::string::npos) << run.err;
    ASSERT_EQ(whole_steps("run").size(), 2U);
    // Follow the cure in the message: remove the bad state, then continue with another learning
    // rate.
    const std::size_t at = run.err.find("remove run/step_");
    if (at != std::string::npos) shell("rm -r " + run.err.substr(at + 7, 17));
    // With one process per device, the line may continue with the processes that reported it.
    EXPECT_EQ("run/" + names("run").back(), run.err.substr(run.err.find(good) + 23, 17));
    const Ended again = tessera(words(mesh) + "--resume --steps 10 --lr 1e-6 --json run.json");
    EXPECT_EQ(again.exit_code, 0) << again.err;
    for (const auto& loss : object("run.json")["losses"]) EXPECT_TRUE(loss.is_number());
  }
}

/// With --allow-nan the run goes on. The last finite state is kept besides the two latest ones.
TEST_F(Finite, AllowedOnesNeverTakeTheLastGoodState) {
  for (const std::string& mesh : kMeshes) {
    SCOPED_TRACE(mesh);
    begin(mesh);
    const Ended run = tessera(words(mesh) + "--resume --steps 10 --lr 9e29 --allow-nan");
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const std::vector<std::string> steps = whole_steps("run");
    EXPECT_EQ(steps, (std::vector<std::string>{"step_00000003", "step_00000009", "step_00000010"}));
    // A resumed run refuses a state that is not finite ...
    const Ended refused = tessera(words(mesh) + "--resume --steps 12 --lr 1e-6");
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_NE(refused.err.find("the state of the checkpoint is not finite"), std::string::npos);
    // ... and the cure in that message leads back to the finite state.
    shell("rm -r run/step_00000009 run/step_00000010");
    const Ended again = tessera(words(mesh) + "--resume --steps 12 --lr 1e-6");
    EXPECT_EQ(again.exit_code, 0) << again.err;
  }
}

TEST_F(Finite, AllowedOnesRunToTheEndWithoutCheckpoints) {
  const Ended run = tessera(
      "train mlp --depth 8 --layers 1 --batch 4 --mesh none --lr 9e29 --steps 6 --allow-nan "
      "--progress off --json run.json");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(object("run.json")["losses"].size(), 6U);
}

}  // namespace
}  // namespace tessera::testing
