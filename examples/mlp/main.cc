// Trains the perceptron of model.h on a mesh of 2x4 virtual devices, its weights split as
// annotated.

#include <cstdio>

#include <tessera/optim.h>

#include "model.h"

int main() {
  using namespace tessera;
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  const use_mesh scope(mesh);
  const mlp::Config config;

  auto init = [&](Key key) {
    return TrainState(mlp::MLP(nn::Scope(key), config), optim::adam({.learning_rate = 1e-3}));
  };
  const Shardings specs = get_partition_spec(eval_shape(init, Key(0)));
  std::printf("%s", to_string(specs["params"]).c_str());
  auto state = jit(init, {.out_shardings = specs})(Key(0));
  for (const Param& weight : tree_params(state.params)) {
    const Array tile = weight.local_data(0);
    std::printf("%s %s on each device\n", weight.path().c_str(), to_string(tile.shape()).c_str());
    std::printf("%s", visualize_array_sharding(weight).c_str());
  }

  auto step = jit(
      [](TrainState<mlp::MLP> old, Array x) {
        auto [loss, grads] =
            value_and_grad([&](const mlp::MLP& model) { return sum(model(x)); })(old.params);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      {.donate_argnums = {0}});

  const Array x = device_put(ones({8, config.depth}), P{"data", none});
  Array loss;
  for (int i = 0; i < 5; ++i) {
    std::tie(state, loss) = step(std::move(state), x);
    std::printf("step %d  loss %.4f\n", i, loss.item<double>());
  }
}
