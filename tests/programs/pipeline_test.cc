// The transformer with micro-batches against the numbers that JAX, Flax and Optax give, and the
// same bits on any mesh.

#include <gtest/gtest.h>

#include <tessera/data.h>
#include <tessera/optim.h>

#include "pipeline/model.h"
#include "tests/programs/training.h"

namespace tessera::testing {
namespace {

using State = TrainState<pipeline::Transformer>;

const pipeline::Config kGolden{.seq = 32, .d_model = 64};

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
  data::RandomState random(0);
  const auto draw = [&] {
    const Array x = random.standard_normal({8, config.seq, config.d_model});
    return has_mesh ? device_put(x, P{"fsdp"}) : x;
  };
  const Array xs = draw();
  const Array targets = draw();
  TrainingRun run;
  for (int i = 0; i < steps; ++i) {
    Array loss;
    std::tie(state, loss) = step(state, xs, targets);
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
