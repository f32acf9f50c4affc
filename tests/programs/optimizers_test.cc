// Training steps with every optimiser give the same bits on any mesh, with any part of the state
// split, and in pipelines.
#include <gtest/gtest.h>

#include <tessera/error.h>
#include <tessera/optim.h>

#include "layouts/zero.h"
#include "lm/model.h"
#include "pipeline/model.h"
#include "tests/programs/training.h"

namespace tessera::testing {
namespace {

using State = TrainState<lm::LM>;

const lm::Config kConfig{
    .vocab = 50, .seq = 12, .d_model = 32, .heads = 4, .layers = 2, .d_ff = 48};
constexpr int kSteps = 4;

std::map<std::string, optim::Optimizer> optimizers() {
  const auto rate = optim::warmup_cosine_decay_schedule(
      {.peak_value = 1e-2, .warmup_steps = 1, .decay_steps = 4});
  const auto kernels = optim::Mask::except({"*/bias", "*/scale"});
  return {
      {"sgd", optim::sgd({.learning_rate = rate})},
      {"momentum", optim::sgd({.learning_rate = 1e-2, .momentum = 0.9, .nesterov = true})},
      {"adamw", optim::chain({optim::clip_by_global_norm(0.5),
                              optim::adamw({.learning_rate = rate, .mask = kernels})})},
      {"adafactor", optim::adafactor({.learning_rate = rate, .min_dim_size_to_factor = 8})},
      {"lion", optim::chain({optim::clip(0.01), optim::lion({.learning_rate = rate})})},
      {"muon", optim::muon({.learning_rate = rate})},
      {"lamb", optim::lamb({.learning_rate = rate, .weight_decay = 0.1, .mask = kernels})},
      {"rmsprop", optim::rmsprop({.learning_rate = rate, .centered = true, .momentum = 0.9})},
      {"novograd", optim::novograd({.learning_rate = rate})},
      {"accumulated", optim::multi_steps(optim::chain({optim::clip_by_global_norm(0.5),
                                                       optim::adam({.learning_rate = rate})}),
                                         2)},
  };
}

auto init_of(const optim::Optimizer& tx) {
  return [tx](Key key) { return State(lm::LM(nn::Scope(key), kConfig), tx); };
}

auto training_step() {
  return jit(
      [](State old, Array ids) {
        auto [loss, grads] = value_and_grad(
            [&](const lm::LM& model) { return lm::next_token_loss(model(ids), ids); })(old.params);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      {.donate_argnums = {0}});
}

/// `shardings_of(mesh, shapes)` returns the shardings of the state.
template <typename ShardingsOf>
TrainingRun train(const optim::Optimizer& tx, const Mesh& mesh, const ShardingsOf& shardings_of) {
  const use_mesh scope(mesh);
  const auto init = init_of(tx);
  const bool has_mesh = !mesh.axes().empty();
  Shardings shardings;
  if (has_mesh) shardings = shardings_of(mesh, eval_shape(init, Key(0)));
  State state = jit(init, {.out_shardings = shardings})(Key(0));
  const auto step = training_step();
  TrainingRun run;
  for (int i = 0; i < kSteps; ++i) {
    Array ids = random::randint(random::fold_in(Key(7), static_cast<std::uint32_t>(i)),
                                {8, kConfig.seq}, 0, 50);
    if (has_mesh) ids = device_put(ids, NamedSharding(mesh, P{"data"}));
    Array loss;
    std::tie(state, loss) = step(std::move(state), ids);
    run.losses.push_back(loss.item<float>());
  }
  run.params_hash = checkpoint::fingerprint(checkpoint::named_arrays(state));
  return run;
}

TEST(OptimizersInPrograms, TheSameBitsOnAnyMesh) {
  const auto whole = [](const Mesh& mesh, const State& shapes) { return replicated(mesh, shapes); };
  const auto split = [](const Mesh& mesh, const State& shapes) {
    return fsdp_shardings(mesh, shapes, "data");
  };
  // Parameters are replicated, the optimiser's state is split.
  const auto zero = [](const Mesh& mesh, const State& shapes) {
    return layouts::zero_shardings(mesh, shapes, layouts::Zero::optimizer);
  };
  std::map<std::string, std::string> hashes;
  for (const auto& [name, tx] : optimizers()) {
    SCOPED_TRACE(name);
    const TrainingRun want = train(tx, make_mesh({}), whole);
    const auto [other, is_new] = hashes.emplace(want.params_hash, name);
    EXPECT_TRUE(is_new) << "as " << other->second;
    for (const Mesh& mesh : {make_mesh({{"data", 8}}), make_mesh({{"data", 4}, {"model", 2}})}) {
      SCOPED_TRACE(to_string(mesh));
      expect_same_bits(train(tx, mesh, whole), want);
      expect_same_bits(train(tx, mesh, split), want);
      expect_same_bits(train(tx, mesh, zero), want);
    }
  }
}

/// The state is donated and the new state takes its memory. Only small factored arrays are new.
TEST(OptimizersInPrograms, UpdateInPlace) {
  for (const auto& [name, tx] : optimizers()) {
    const State shapes = eval_shape(init_of(tx), Key(0));
    const MemoryPlan plan =
        training_step().lower(shapes, zeros({8, kConfig.seq}, DType::i32)).compile().memory();
    EXPECT_LE(plan.results, name == "adafactor" ? plan.arguments / 10 : 16) << name;
  }
}

TEST(OptimizersInPrograms, TheSameBitsInPipelines) {
  const pipeline::Config config{
      .seq = 8, .d_model = 64, .layers = 4, .microbatches = 4, .stages = 4};
  using Stages = TrainState<pipeline::Transformer>;
  const FixedSchedule schedule{
      .num_stages = 4,
      .mpmd_dim = 4,
      .num_microbatches = 4,
      .list = schedule_tasks("Std1F1B", {.num_stages = 4, .mpmd_dim = 4}, 4)};
  const auto run = [&](const optim::Optimizer& tx, bool is_staged) {
    const auto body = [config, schedule](Stages old, Array xs, Array targets) {
      auto [loss, grads] =
          pipeline::accumulate(old.params, xs, targets, config.microbatches, Schedule(schedule));
      return std::tuple(old.apply_gradients(grads), loss);
    };
    std::optional<MpmdMesh> groups;
    if (is_staged) groups.emplace(make_mesh({{"stage", 4}, {"fsdp", 1}}), "stage");
    const auto step = jit(body, {.donate_argnums = {0}, .mpmd_mesh = groups});
    Stages state(pipeline::Transformer(nn::Scope(Key(0)), config), tx);
    TrainingRun trained;
    for (int i = 0; i < 2; ++i) {
      const Shape shape = {4, config.seq, config.d_model};
      Array loss;
      std::tie(state, loss) = step(std::move(state), random::normal(Key(3), shape), ones(shape));
      trained.losses.push_back(loss.item<float>());
    }
    trained.params_hash = checkpoint::fingerprint(checkpoint::named_arrays(state));
    return trained;
  };
  for (const auto& [name, tx] : optimizers()) {
    SCOPED_TRACE(name);
    expect_same_bits(run(tx, true), run(tx, false));
  }
}

}  // namespace
}  // namespace tessera::testing
