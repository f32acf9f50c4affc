// Fast numerics on whole programs: how much more exact numerics send, losses that stay close, and
// the same bits for any number of threads.

#include <gtest/gtest.h>
#include <map>

#include <tessera/data.h>
#include <tessera/engine.h>
#include <tessera/optim.h>

#include "mlp/model.h"
#include "pipeline/model.h"
#include "tests/programs/lm_support.h"

namespace tessera::testing {
namespace {

struct Total {
  std::int64_t count = 0;
  std::int64_t wire_bytes = 0;
};
using Totals = std::map<std::string, Total>;

Totals totals_of(const std::vector<CollectiveUse>& uses) {
  Totals totals;
  for (const CollectiveUse& use : uses) totals[use.kind] = {use.count, use.wire_bytes};
  return totals;
}

std::int64_t bytes_of(const Totals& totals) {
  std::int64_t bytes = 0;
  for (const auto& [kind, total] : totals) bytes += total.wire_bytes;
  return bytes;
}

struct Trained {
  std::vector<float> losses;
  std::string params_hash;
  Totals planned;   // of one step
  Totals executed;  // of one step
};

/// Losses may differ only by rounding.
void expect_close(const Trained& fast, const Trained& exact) {
  ASSERT_EQ(fast.losses.size(), exact.losses.size());
  for (std::size_t i = 0; i < fast.losses.size(); ++i) {
    EXPECT_NEAR(fast.losses[i], exact.losses[i], 1e-5F * std::fabs(exact.losses[i])) << i;
  }
}

template <typename Step, typename State>
Trained run_steps(const Step& step, State state, const std::vector<Array>& batch, int steps) {
  Trained result;
  const auto call = [&](const auto& f) {
    if constexpr (std::is_invocable_v<Step, State, Array, Array>) {
      return f(state, batch[0], batch[1]);
    } else {
      return f(state, batch[0]);
    }
  };
  const auto lowered = call([&](const auto&... arguments) { return step.lower(arguments...); });
  result.planned = totals_of(lowered.collectives());
  for (int i = 0; i < steps; ++i) {
    reset_collective_counts();
    Array loss;
    std::tie(state, loss) = call(step);
    result.losses.push_back(loss.item<float>());
    if (i == 0) result.executed = totals_of(collective_counts());
  }
  result.params_hash = checkpoint::fingerprint(checkpoint::named_arrays(state.params));
  return result;
}

Trained train_pipeline(Numerics numerics, const Mesh& mesh = make_mesh({{"fsdp", 4}})) {
  const pipeline::Config config{
      .seq = 8, .d_model = 32, .heads = 4, .layers = 2, .microbatches = 3};
  const use_mesh scope(mesh);
  const auto init = [&](Key key) {
    return TrainState(pipeline::Transformer(nn::Scope(key), config),
                      optim::adamw({.learning_rate = 1e-3}));
  };
  const Shardings shardings = fsdp_shardings(mesh, eval_shape(init, Key(0)), "fsdp");
  const auto step = jit(
      [&](TrainState<pipeline::Transformer> old, Array xs, Array targets) {
        auto [loss, grads] = pipeline::accumulate(old.params, xs, targets, config.microbatches);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      {.out_shardings = {shardings, P{}}, .numerics = numerics});
  data::RandomState random(0);
  const auto draw = [&] {
    return device_put(random.standard_normal({12, config.seq, config.d_model}), P{"fsdp"});
  };
  const Array xs = draw();
  return run_steps(step, jit(init, {.out_shardings = shardings})(Key(0)), {xs, draw()}, 3);
}

TEST(FastNumerics, MicrobatchesAddUpAndAreReducedOnce) {
  const Trained exact = train_pipeline(Numerics::exact);
  const Trained fast = train_pipeline(Numerics::fast);
  expect_close(fast, exact);
  EXPECT_EQ(exact.executed.at("reduce_scatter").count, 3);
  EXPECT_EQ(exact.executed.at("all_reduce").count, 3);
  EXPECT_EQ(fast.executed.at("reduce_scatter").count, 1);
  EXPECT_EQ(fast.executed.at("all_reduce").count, 1);
  EXPECT_EQ(3 * fast.executed.at("reduce_scatter").wire_bytes,
            exact.executed.at("reduce_scatter").wire_bytes);
  for (const Trained& run : {exact, fast}) {
    EXPECT_EQ(bytes_of(run.planned), bytes_of(run.executed));
  }
}

TEST(FastNumerics, ThreadsDoNotMatter) {
  const int before = num_threads();
  set_num_threads(1);
  const Trained one = train_pipeline(Numerics::fast);
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    const Trained again = train_pipeline(Numerics::fast);
    EXPECT_EQ(again.losses, one.losses) << threads;
    EXPECT_EQ(again.params_hash, one.params_hash) << threads;
  }
  set_num_threads(before);
}

Trained train_lm(Numerics numerics, std::int64_t devices, Layout layout) {
  const lm::Config config{.vocab = 50,
                          .seq = 12,
                          .d_model = 32,
                          .heads = 4,
                          .layers = 2,
                          .d_ff = 48,
                          .is_causal = true};
  const Mesh mesh = make_mesh({{"data", devices}});
  const use_mesh scope(mesh);
  const auto step = jit(
      [](State old, Array ids) {
        auto [loss, grads] = loss_and_grads(old.params, ids);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      {.numerics = numerics});
  const data::Tokens tokens = data::random_tokens(1234, 512, config.seq, 50);
  return run_steps(step, make_state(config, mesh, layout),
                   {device_put(tokens.batch(0, 6), P{"data"})}, 3);
}

TEST(FastNumerics, LanguageModel) {
  for (Layout layout : {Layout::replicated, Layout::fsdp}) {
    const Trained exact = train_lm(Numerics::exact, 2, layout);
    const Trained fast = train_lm(Numerics::fast, 2, layout);
    expect_close(fast, exact);
    EXPECT_LE(bytes_of(fast.executed), bytes_of(exact.executed));
  }
}

/// Three devices do not divide the grains evenly, so exact numerics move terms before summing them.
TEST(FastNumerics, ThreeDevicesReduceGradients) {
  const Trained exact = train_lm(Numerics::exact, 3, Layout::replicated);
  const Trained fast = train_lm(Numerics::fast, 3, Layout::replicated);
  expect_close(fast, exact);
  EXPECT_EQ(exact.executed.count("all_to_all"), 1U);
  EXPECT_EQ(fast.executed.size(), 1U);
  EXPECT_EQ(fast.executed.count("all_reduce"), 1U);
}

TEST(FastNumerics, Perceptron) {
  const mlp::Config config{.depth = 64, .layers = 2};
  const auto train = [&](Numerics numerics) {
    const use_mesh scope(make_mesh({{"data", 2}, {"model", 4}}));
    const auto init = [&](Key key) {
      return TrainState(mlp::MLP(nn::Scope(key), config), optim::adam({.learning_rate = 1e-3}));
    };
    const Shardings specs = get_partition_spec(eval_shape(init, Key(0)));
    const auto step = jit(
        [](TrainState<mlp::MLP> old, Array x) {
          auto [loss, grads] =
              value_and_grad([&](const mlp::MLP& model) { return sum(model(x)); })(old.params);
          return std::tuple(old.apply_gradients(grads), loss);
        },
        {.numerics = numerics});
    return run_steps(step, jit(init, {.out_shardings = specs})(Key(0)),
                     {device_put(ones({8, 64}), P{"data"})}, 3);
  };
  const Trained exact = train(Numerics::exact);
  const Trained fast = train(Numerics::fast);
  expect_close(fast, exact);
  EXPECT_LE(bytes_of(fast.executed), bytes_of(exact.executed));
}

TEST(FastNumerics, PsumOverThreeDevices) {
  const Mesh mesh = make_mesh({{"data", 3}});
  const use_mesh scope(mesh);
  const Array x = device_put(arange(6, DType::f32) + 1.0F, P{"data"});
  const auto total = [&](const Array& v) {
    return shard_map([](const Array& tile) { return psum(tile, "data"); },
                     {.in_specs = {P{"data"}}, .out_specs = P{}})(v);
  };
  const auto kinds = [&](Numerics numerics) {
    const auto f = jit(total, {.numerics = numerics});
    EXPECT_EQ(f(x).to_vector<float>(), (std::vector<float>{9, 12}));
    return totals_of(f.lower(x).collectives());
  };
  EXPECT_EQ(kinds(Numerics::exact).count("all_reduce"), 0U);
  const Totals fast = kinds(Numerics::fast);
  ASSERT_EQ(fast.count("all_reduce"), 1U);
  EXPECT_EQ(fast.size(), 1U);
}

TEST(FastNumerics, TheSettingIsPartOfWhatIsCompiled) {
  const use_mesh scope(make_mesh({{"data", 4}}));
  const Array x = device_put(ones({4, 64}), P{none, "data"});
  const Array y = device_put(ones({64, 8}), P{"data"});
  const auto f = jit([](const Array& a, const Array& b) { return dot(a, b) + dot(a * 2.0F, b); });
  const auto reduced = [&] { return totals_of(f.lower(x, y).collectives())["all_reduce"]; };
  EXPECT_EQ(numerics(), Numerics::exact);
  const Total exact = reduced();
  set_numerics(Numerics::fast);
  const Total fast = reduced();
  set_numerics(Numerics::exact);
  EXPECT_EQ(2 * fast.wire_bytes, exact.wire_bytes);
  EXPECT_EQ(reduced().wire_bytes, exact.wire_bytes);
  EXPECT_EQ(f.num_traces(), 2);
}

}  // namespace
}  // namespace tessera::testing
