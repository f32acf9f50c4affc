// How often the command traces the step of a pipeline before it runs.
#include <gtest/gtest.h>

#include "pipeline_support.h"
#include "tools/tessera/job.h"
#include "tools/tessera/pipeline_plan.h"

namespace tessera::cli {
namespace {

constexpr std::int64_t kMicrobatches = 4;

/// Counts how often its step is traced.
class CountingJob final : public Job<testing::PipelineNet, testing::PipelineBatch> {
 public:
  CountingJob(const std::string& schedule, double memory_limit)
      : plan_({.schedule = schedule,
               .stages = {},
               .groups = 2,
               .microbatches = kMicrobatches,
               .memory_limit = memory_limit}) {}

  std::optional<MpmdMesh> mpmd_mesh() const override {
    return MpmdMesh(make_mesh({{"stage", 2}, {"data", 2}}), "stage");
  }
  void prepare(const LowerStep& lower) override { plan_.choose(lower); }
  int plan_number() const override { return plan_.number(); }
  Model make_model(const Key& /*key*/) const override { return testing::make_net(); }
  std::tuple<Array, Model> loss_and_grads(const Model& params, const Batch& batch,
                                          const Array& /*step*/) const override {
    ++num_traces;
    auto [grads, loss, losses] = testing::step_of(params, batch, plan_.schedule());
    return {loss, grads};
  }
  Batch batch(std::int64_t /*step*/) const override { return testing::make_batch(kMicrobatches); }
  Batch blank_batch() const override { return batch(0); }
  StepWork work() const override { return {.count = 1, .unit = "rows"}; }
  nlohmann::json config() const override { return {}; }

  mutable int num_traces = 0;

 private:
  PipelinePlan plan_;
};

StepShapes<CountingJob> shapes_of(const CountingJob& job) {
  auto state = eval_shape(
      [&](Key key) {
        return TrainState(job.make_model(key), optim::sgd({.learning_rate = 0.1}),
                          std::source_location());
      },
      Key(0));
  auto batch = eval_shape([&] { return job.blank_batch(); });
  return {std::move(state), std::move(batch), {}};
}

/// The number of traces until the step that runs is lowered.
int traces(const std::string& schedule, double memory_limit = 0) {
  CountingJob job(schedule, memory_limit);
  const use_mesh scope(job.mpmd_mesh()->group_mesh());
  const StepShapes<CountingJob> shapes = shapes_of(job);
  LoweredStep<CountingJob> step(job, shapes);
  job.prepare(step.facts());
  EXPECT_FALSE(step.get().task_ir().empty());
  const std::string first = step.get().ir();
  EXPECT_EQ(shapes.lower(job).ir(), first) << "the job makes another step than the one that runs";
  return job.num_traces - 1;
}

TEST(LoweredStep, IsTracedOnceWhereThePlanIsKnown) {
  EXPECT_EQ(traces("Std1F1B"), 1);
  EXPECT_EQ(traces("GPipe"), 1);
}

TEST(LoweredStep, IsTracedAgainWithTheScheduleThatWasFound) { EXPECT_EQ(traces("auto"), 2); }

TEST(LoweredStep, ACandidateWithinTheMemoryLimitIsKept) {
  // One trace for the costs, one for the first candidate.
  EXPECT_EQ(traces("auto", 1e12), 2);
}

}  // namespace
}  // namespace tessera::cli
