// The perceptron against the numbers that JAX, Flax and Optax give, and the same bits on any mesh.

#include <gtest/gtest.h>

#include <tessera/optim.h>

#include "mlp/model.h"
#include "tests/programs/training.h"

namespace tessera::testing {
namespace {

using State = TrainState<mlp::MLP>;

State make_state(const mlp::Config& config, const Mesh& mesh) {
  const auto init = [&](Key key) {
    return State(mlp::MLP(nn::Scope(key), config), optim::adam({.learning_rate = 1e-3}));
  };
  const Shardings shardings = mesh.axes().empty() ? Shardings() : from_annotations(mesh);
  return jit(init, {.out_shardings = shardings})(Key(0));
}

auto make_step() {
  return jit([](State old, Array x) {
    auto [loss, grads] =
        value_and_grad([&](const mlp::MLP& model) { return sum(model(x)); })(old.params);
    return std::tuple(old.apply_gradients(grads), loss);
  });
}

Array inputs(const mlp::Config& config, const Mesh& mesh) {
  const Array x = ones({8, config.depth});
  return mesh.axes().empty() ? x : device_put(x, P{"data", none});
}

TrainingRun train(const mlp::Config& config, const Mesh& mesh, int steps) {
  const use_mesh scope(mesh);
  State state = make_state(config, mesh);
  const Array x = inputs(config, mesh);
  const auto step = make_step();
  TrainingRun run;
  for (int i = 0; i < steps; ++i) {
    Array loss;
    std::tie(state, loss) = step(state, x);
    run.losses.push_back(loss.item<float>());
  }
  run.params_hash = checkpoint::fingerprint(checkpoint::named_arrays(state.params));
  return run;
}

void expect_output(const Array& y, const nlohmann::json& want) {
  const std::vector<float> values = y.to_vector<float>();
  const double sum = want["sum"];
  EXPECT_NEAR(sums_of(values).sum, sum, 1e-4 * std::fabs(sum));
  for (std::size_t i = 0; i < want["row0_first4"].size(); ++i) {
    const double x = want["row0_first4"][i];
    EXPECT_NEAR(static_cast<double>(values[i]), x, 1e-4 * std::fabs(x));
  }
}

/// The peer names a parameter ['ScanDotReluDot_0']['W1'].value and gives its sums.
void expect_sums(const mlp::MLP& model, const nlohmann::json& want_all, double relative) {
  const auto arrays = checkpoint::named_arrays(model);
  EXPECT_EQ(arrays.size(), want_all.size());
  for (const checkpoint::NamedArray& item : arrays) {
    SCOPED_TRACE(item.name);
    const std::size_t slash = item.name.find('/');
    const auto& want = want_all["['" + item.name.substr(0, slash) + "']['" +
                                item.name.substr(slash + 1) + "'].value"];
    const Sums sums = sums_of(item.array.to_vector<float>());
    const double abs_sum = want[1];
    EXPECT_NEAR(sums.abs_sum, abs_sum, relative * abs_sum);
    EXPECT_NEAR(sums.sum, want[0], relative * abs_sum);
  }
}

class MlpGolden : public ::testing::TestWithParam<bool> {};

TEST_P(MlpGolden, OutputsAndParametersAreFlaxs) {
  const mlp::Config config{.use_scan = GetParam()};
  const auto golden =
      read_golden("seed_numbers.json")[config.use_scan ? "seed002_scan" : "seed002_loop"];
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  const use_mesh scope(mesh);
  const State state = make_state(config, mesh);
  const Array x = inputs(config, mesh);
  const auto apply = jit([](mlp::MLP model, Array input) { return model(input); });
  expect_sums(state.params, golden["params_after_init"], 1e-6);
  expect_output(apply(state.params, x), golden["y_after_init"]);
  const State next = std::get<0>(make_step()(state, x));
  expect_sums(next.params, golden["params_after_step"], 1e-5);
  expect_output(apply(next.params, x), golden["y_after_step"]);
}
INSTANTIATE_TEST_SUITE_P(LoopAndScan, MlpGolden, ::testing::Bool());

TEST(Mlp, ParametersHaveTheLayoutOfTheirAnnotations) {
  const mlp::Config config{.depth = 16};
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  const use_mesh scope(mesh);
  const State state = make_state(config, mesh);
  const auto& scanned = state.params.scanned;
  EXPECT_EQ(scanned->layers.w1.path(), "ScanDotReluDot_0/W1");
  EXPECT_EQ(scanned->layers.w1.shape(), (Shape{4, 16, 16}));
  EXPECT_EQ(to_string(scanned->layers.w1.sharding().spec), "P(None, None, 'model')");
  EXPECT_EQ(to_string(scanned->layers.w2.sharding().spec), "P(None, 'model')");
  EXPECT_EQ(to_string(state.opt_state.slots.at("nu")[1].sharding().spec), "P(None, 'model')");
  EXPECT_EQ(scanned->layers.w1.local_data(0).shape(), (Shape{4, 16, 4}));
}

TEST(Mlp, SameBitsOnEveryMesh) {
  for (bool use_scan : {false, true}) {
    SCOPED_TRACE(use_scan ? "scan" : "loop");
    const mlp::Config config{.depth = 48, .layers = 3, .use_scan = use_scan};
    const TrainingRun want = train(config, Mesh(), 3);
    expect_same_bits(train(config, make_mesh({{"data", 2}, {"model", 4}}), 3), want);
    expect_same_bits(train(config, make_mesh({{"data", 1}, {"model", 8}}), 3), want);
    expect_same_bits(train(config, make_mesh({{"data", 3}, {"model", 1}}), 3), want);
  }
}

}  // namespace
}  // namespace tessera::testing
