// The transformer with microbatches: compared with numbers of JAX, Flax and Optax, and the same
// bits on any mesh.

#include <gtest/gtest.h>

#include <tessera/data.h>
#include <tessera/optim.h>

#include "pipeline/model.h"
#include "tests/programs/training.h"

namespace tessera::testing {
namespace {

using State = TrainState<pipeline::Transformer>;

const pipeline::Config kGolden{.seq = 32, .d_model = 64};

std::tuple<Array, Array> make_batch(const pipeline::Config& config) {
  data::RandomState random(0);
  const Array xs = random.standard_normal({8, config.seq, config.d_model});
  return {xs, random.standard_normal({8, config.seq, config.d_model})};
}

TrainingRun train(const pipeline::Config& config, const Mesh& mesh, int steps) {
  const use_mesh scope(mesh);
  const auto init = [&](Key key) {
    return State(pipeline::Transformer(nn::Scope(key), config),
                 optim::adamw({.learning_rate = 1e-3}));
  };
  const bool has_mesh = !mesh.axes().empty();
  Shardings shardings;
  if (has_mesh) shardings = fsdp_shardings(mesh, eval_shape(init, Key(0)), "fsdp");
  State state = jit(init, {.out_shardings = shardings})(Key(0));
  const auto step = jit([&](State old, Array xs, Array targets) {
    auto [loss, grads] = pipeline::accumulate(old.params, xs, targets, config.microbatches);
    return std::tuple(old.apply_gradients(grads), loss);
  });
  auto [xs, targets] = make_batch(config);
  if (has_mesh) std::tie(xs, targets) = device_put(std::tuple(xs, targets), Shardings(P{"fsdp"}));
  TrainingRun run;
  for (int i = 0; i < steps; ++i) {
    Array loss;
    std::tie(state, loss) = step(state, xs, targets);
    run.losses.push_back(loss.item<float>());
  }
  run.params_hash = checkpoint::fingerprint(checkpoint::named_arrays(state.params));
  return run;
}

/// The step as a pipeline of groups of `devices` devices.
auto staged_step(const pipeline::Config& config, const Schedule& schedule, std::int64_t devices) {
  const MpmdMesh mesh(make_mesh({{"stage", schedule.mpmd_dim()}, {"fsdp", devices}}), "stage");
  const auto step = [config, schedule](State old, Array xs, Array targets) {
    auto [loss, grads] =
        pipeline::accumulate(old.params, xs, targets, config.microbatches, schedule);
    return std::tuple(old.apply_gradients(grads), loss);
  };
  // Without marks the compiler cuts the stages.
  JitOptions options{.donate_argnums = {0}};
  if (config.stages == 0) options.auto_stages = AutoStages{};
  return std::pair(mesh, mpmd_jit_with_loop(step, mesh, options));
}

TrainingRun train_staged(pipeline::Config config, const Schedule& schedule, std::int64_t devices,
                         int steps, bool is_cut = false) {
  config.stages = is_cut ? 0 : schedule.num_stages();
  const auto [mesh, step] = staged_step(config, schedule, devices);
  const use_mesh scope(mesh.group_mesh());
  State state(pipeline::Transformer(nn::Scope(Key(0)), config),
              optim::adamw({.learning_rate = 1e-3}));
  state = device_put(state, fsdp_shardings(mesh.group_mesh(), state, "fsdp"));
  const auto [xs, targets] = device_put(make_batch(config), Shardings(P{"fsdp"}));
  TrainingRun run;
  for (int i = 0; i < steps; ++i) {
    Array loss;
    std::tie(state, loss) = step(std::move(state), xs, targets);
    run.losses.push_back(loss.item<float>());
  }
  run.params_hash = checkpoint::fingerprint(checkpoint::named_arrays(state.params));
  return run;
}

TEST(PipelineGolden, InitialParametersAreFlaxs) {
  const auto golden = read_golden("pipeline.json");
  expect_parameters(
      jit([](Key key) { return pipeline::Transformer(nn::Scope(key), kGolden); })(Key(0)),
      golden["initial"]);
}

TEST(PipelineGolden, LossesAreJaxs) {
  const auto golden = read_golden("pipeline.json");
  const TrainingRun run = train(kGolden, make_mesh({{"fsdp", 4}}), 6);
  expect_losses(run, golden["losses"], 5e-6);
  expect_same_bits(run, train(kGolden, Mesh(), 6));
}

TEST(PipelineGolden, StagesHaveTheLossesOfTheLoop) {
  const TrainingRun run = train(kGolden, Mesh(), 6);
  expect_same_bits(train_staged(kGolden, Interleaved1F1B{4}, 1, 6), run);
  expect_same_bits(train_staged(kGolden, Interleaved1F1B{8, 4}, 1, 6), run);
  expect_same_bits(train_staged(kGolden, ZBV{4, 2}, 2, 6), run);
  // Four devices share the two rows of a microbatch, so two have none.
  expect_same_bits(train_staged(kGolden, ZeroBubble{2}, 4, 6), run);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

TEST(PipelineGolden, StagesThatAreCutHaveTheLossesOfTheLoop) {
  const TrainingRun run = train(kGolden, Mesh(), 6);
  expect_same_bits(train_staged(kGolden, Interleaved1F1B{8, 4}, 1, 6, true), run);
  expect_same_bits(train_staged(kGolden, ZBV{4, 2}, 2, 6, true), run);
  expect_same_bits(train_staged(kGolden, Std1F1B{3}, 1, 6, true), run);
}

// JaxPP 0.9.2 has 36 tasks and 27 transfers for four stages, 68 and 59 for eight.
TEST(PipelineGolden, NoMoreTasksAndTransfersThanJaxPP) {
  for (const auto& [stages, is_cut] :
       std::vector<std::pair<std::int64_t, bool>>{{4, false}, {8, false}, {4, true}, {8, true}}) {
    pipeline::Config config = kGolden;
    config.stages = is_cut ? 0 : stages;
    const Interleaved1F1B schedule{.num_stages = stages, .mpmd_dim = 4};
    const auto [mesh, step] = staged_step(config, schedule, 1);
    const use_mesh scope(mesh.group_mesh());
    const State state(pipeline::Transformer(nn::Scope(Key(0)), config),
                      optim::adamw({.learning_rate = 1e-3}));
    const auto [xs, targets] = make_batch(config);
    const std::string text = step.lower(state, xs, targets).task_ir();
    EXPECT_EQ(count(text, "= task["), stages == 4 ? 36U : 68U);
    EXPECT_EQ(count(text, "= transfer["), stages == 4 ? 24U : 56U);
  }
}

TEST(PipelineBf16, LossesStayCloseToThoseOfF32OnEveryMesh) {
  const pipeline::Config config{.seq = 6, .d_model = 32, .heads = 4, .layers = 2};
  pipeline::Config narrow = config;
  narrow.dtype = DType::bf16;
  const Mesh mesh = make_mesh({{"fsdp", 4}});
  const TrainingRun run = train(narrow, mesh, 20);
  expect_close_losses(run, train(config, mesh, 20));
  expect_same_bits(run, train(narrow, Mesh(), 20));
}

TEST(Pipeline, SameBitsOnEveryMesh) {
  const pipeline::Config config{.seq = 6, .d_model = 32, .heads = 4, .layers = 2};
  const TrainingRun want = train(config, Mesh(), 3);
  for (std::int64_t devices : {2, 3, 8}) {
    SCOPED_TRACE(devices);
    expect_same_bits(train(config, make_mesh({{"fsdp", devices}}), 3), want);
  }
}

}  // namespace
}  // namespace tessera::testing
