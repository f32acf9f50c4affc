// Plugins that fail while they run: a clear error, and the state on disk stays intact.
#include <cmath>
#include <filesystem>

#include <tessera/checkpoint.h>
#include <tessera/engine.h>
#include <tessera/error.h>
#include <tessera/jit.h>
#include <tessera/ops.h>
#include <tessera/random.h>

#include "tests/pjrt/plugin.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

const std::string kShardedLm =
    "train lm --mesh data=2 --vocab 600 --seq 12 --d-model 64 --heads 4 --layers 2 --d-ff 48 "
    "--batch 4 --steps 6 ";

class PjrtFaults : public PjrtCommands {
 protected:
  CommandOutcome run_with(const std::string& fault, const std::string& arguments) const {
    const FaultyPlugin plugin(fault);
    return run(arguments + " --engine " + FaultyPlugin::engine());
  }
  std::int64_t latest() const {
    return checkpoint::latest_step((folder() / "run").string()).value_or(-1);
  }
  /// The host continues from the checkpoint and reaches the loss of an undisturbed run.
  void expect_intact() const {
    const double found = losses(kShardedLm + "--checkpoint run --resume").back();
    const double wanted = losses(kShardedLm).back();
    EXPECT_NEAR(found, wanted, 1e-3 * std::abs(wanted));
  }
};

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(PjrtFaults, OutOfMemoryNamesTheProgramAndTheCure) {
  const CommandOutcome outcome =
      run_with("out_of_memory:5", kShardedLm + "--checkpoint run --every 1");
  EXPECT_EQ(outcome.exit_code, 2);
  expect_contains(outcome.stderr_text, "program ");
  expect_contains(outcome.stderr_text,
                  "the devices have no memory left (code 8); use a smaller batch");
  EXPECT_GT(latest(), 0);
  EXPECT_LT(latest(), 6);
  expect_intact();
}

TEST_F(PjrtFaults, AbortsInTheFirstStepLeaveTheFirstState) {
  // The first program makes the state.
  const CommandOutcome outcome = run_with("abort:2", kShardedLm + "--checkpoint run");
  EXPECT_EQ(outcome.exit_code, 2);
  expect_contains(outcome.stderr_text, "the PJRT plugin ended the process with abort()");
  EXPECT_EQ(latest(), 0);
  expect_intact();
}

TEST_F(PjrtFaults, SignalsAreToldByName) {
  const CommandOutcome outcome = run_with("fpe:4", kShardedLm + "--checkpoint run --every 1");
  EXPECT_EQ(outcome.exit_code, 2);
  expect_contains(outcome.stderr_text, "the PJRT plugin ended the process with SIGFPE");
  expect_contains(outcome.stderr_text, "--resume continues from the last one");
  expect_intact();
}

TEST_F(PjrtFaults, NobodyWaitsForUploads) {
  // Arrays from a checkpoint start on the host. They are donated to the first step.
  losses(kShardedLm + "--checkpoint run --every 3");
  fs::remove_all(checkpoint::step_path((folder() / "run").string(), 6));
  const CommandOutcome outcome =
      run_with("held_uploads", kShardedLm + "--checkpoint run --resume --json r.json");
  EXPECT_EQ(outcome.exit_code, 0);
  expect_contains(outcome.stderr_text, " uploads held\n");
  EXPECT_EQ(outcome.stderr_text.find("faulty plugin: 0 uploads"), std::string::npos);
  expect_intact();
}

/// The message of the fault that `use` must throw.
template <typename F>
std::string fault_of(const F& use) {
  try {
    use();
  } catch (const RuntimeFault& fault) {
    return fault.what();
  }
  return "no fault";
}

TEST_F(PjrtFaults, AreThrownWhereResultsAreUsedWithTheLineOfTheOp) {
  const FaultyPlugin plugin("late:1");
  set_engine(FaultyPlugin::engine());
  const auto line = static_cast<int>(__LINE__) + 1;
  const auto f = jit([](const Array& x) { return std::tuple(x * 2.0F, sum(x)); }, {.name = "pair"});
  const auto [twice, total] = f(random::normal(Key(1), {8, 8}));
  const std::string place = "faults_test.cc:" + std::to_string(line) + " in pair: the PJRT plugin ";
  for (const std::string& fault : {fault_of([&] { twice.block_until_ready(); }),
                                   fault_of([&] { twice.to_vector<float>(); })}) {
    expect_contains(fault, "the result of mul at ");
    expect_contains(fault, place);
    expect_contains(fault, "the devices have failed (code 13)");
  }
  expect_contains(fault_of([&] { total.item<float>(); }), "the result of reduce_sum at ");
  // The next call is not affected.
  EXPECT_EQ(std::get<0>(f(ones({2}))).to_vector<float>(), std::vector<float>({2, 2}));
}

}  // namespace
}  // namespace tessera::testing
