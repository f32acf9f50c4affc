// Trains the perceptron of model.h on a mesh of 2x4 virtual devices. The shardings of parameters
// come from the annotations in the model.

#include <chrono>
#include <cstdio>

#include <tessera/optim.h>

#include "model.h"

namespace {

using namespace tessera;

constexpr std::int64_t kBatch = 8;

/// The initial state: parameters and the state of the optimiser.
template <typename Model>
TrainState<Model> init(const Key& key, const mlp::Config& config) {
  return TrainState(Model(nn::Scope(key), config), optim::adam({.learning_rate = 1e-3}));
}

/// The path of every array, its shape, and the shape of the tile that each device holds.
template <typename Tree>
void print_arrays(const Tree& tree) {
  const std::vector<std::string> paths = tree_paths(tree);
  const std::vector<Array> arrays = tree_leaves(tree);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string tile = to_string(arrays[i].local_data(0).shape());
    std::printf("  %-40s %-14s each device %s\n", paths[i].c_str(),
                to_string(arrays[i].shape()).c_str(), tile.c_str());
  }
}

/// One update; the loss is just the sum of the outputs.
std::tuple<TrainState<mlp::MLP>, Array> train_step(TrainState<mlp::MLP> state, Array x) {
  auto [loss, grads] =
      value_and_grad([&](const mlp::MLP& model) { return sum(model(x)); })(state.params);
  return std::tuple(state.apply_gradients(grads), loss);
}

Array apply(TrainState<mlp::MLP> state, Array x) { return state.params(x); }

/// The model with logical names on the same mesh. `specs`: the shardings of the other model.
void show_logical_names(const mlp::Config& config, const Shardings& specs) {
  auto init_fn = [&](Key key) { return init<mlp::LogicalMLP>(key, config); };
  const Shardings logical = get_partition_spec(eval_shape(init_fn, Key(0)));
  std::printf("\nlogical names\n%s", to_string(logical["params"]).c_str());

  // Rules choose the layout; the model stays the same. Dimensions without a rule, here "embed" and
  // "layer", are not split.
  const LogicalRules rules{{"batch", "data"}, {"hidden", "model"}};
  std::printf("%s", explain_rules({"layer", "embed", "hidden"}, rules).c_str());
  const Shardings translated = logical_to_mesh(logical, rules);
  const bool are_equal =
      translated["params/ScanLogicalDotReluDot_0"] == specs["params/ScanDotReluDot_0"];
  std::printf("the same layout as with mesh axes: %s\n", are_equal ? "yes" : "no");

  // The constraints inside the model use the rules in scope.
  const nn::logical_axis_rules scope(rules);
  const auto state = jit(init_fn, {.out_shardings = translated})(Key(0));
  print_arrays(state.params);
}

}  // namespace

int main() {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  const use_mesh scope(mesh);
  std::printf("mesh %s\n", to_string(mesh).c_str());

  // eval_shape computes no values. The annotations in its result say how to shard the state.
  const mlp::Config config;
  auto init_fn = [&](Key key) { return init<mlp::MLP>(key, config); };
  const Shardings specs = get_partition_spec(eval_shape(init_fn, Key(0)));
  std::printf("%s", to_string(specs).c_str());

  // Each device computes only its own tiles. No device ever holds a whole array.
  auto jitted_init = jit(init_fn, {.out_shardings = specs});
  auto state = jitted_init(Key(0));
  print_arrays(state);
  std::printf("peak bytes on a device while they are computed: %lld\n",
              static_cast<long long>(jitted_init.compiled().memory().peak));

  // A parameter is an array with a path and the names of its dimensions.
  const Param& w1 = state.params.scanned->layers.w1;
  std::printf("%s: named %s, sharded as %s\n", w1.path().c_str(), to_string(w1.spec()).c_str(),
              to_string(w1.sharding().spec).c_str());
  std::printf("%s", visualize_array_sharding(w1).c_str());
  const mlp::MLP diff =
      tree_map([](const Array& a, const Array& b) { return a - b; }, state.params, state.params);
  std::printf("%s of a difference: %s\n", diff.scanned->layers.w1.path().c_str(),
              to_string(diff.scanned->layers.w1.value().shape()).c_str());

  // The batch is split over `data`.
  const PartitionSpec x_spec{"data", none};
  auto step = jit(train_step, {.in_shardings = {specs, x_spec}, .out_shardings = {specs, P{}}});
  auto infer = jit(apply, {.in_shardings = {specs, x_spec}, .out_shardings = x_spec});
  const Array x = device_put(ones({kBatch, config.depth}), x_spec);
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    Array loss;
    std::tie(state, loss) = step(state, x);
    block_until_ready(loss);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    std::printf("step %d  loss %.4f  %.1f ms\n", i, loss.item<double>(), time.count());
  }
  const Array y = infer(state, x);
  std::printf("y: %s %s, sharded as %s\n", std::string(name(y.dtype())).c_str(),
              to_string(y.shape()).c_str(), to_string(y.sharding().spec).c_str());

  show_logical_names(config, specs);
}
