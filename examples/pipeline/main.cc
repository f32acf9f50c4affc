// Trains a small version of the transformer of model.h, with its state split over four devices.

#include <cstdio>

#include <tessera/data.h>
#include <tessera/optim.h>

#include "model.h"

int main() {
  using namespace tessera;
  const Mesh mesh = make_mesh({{"fsdp", 4}});
  const use_mesh scope(mesh);
  const pipeline::Config config{.seq = 32, .d_model = 64};

  auto init = [&](Key key) {
    return TrainState(pipeline::Transformer(nn::Scope(key), config),
                      optim::adamw({.learning_rate = 1e-3}));
  };
  const Shardings shardings = fsdp_shardings(mesh, eval_shape(init, Key(0)), "fsdp");
  auto state = jit(init, {.out_shardings = shardings})(Key(0));

  auto step = jit(
      [&](TrainState<pipeline::Transformer> old, Array xs, Array targets) {
        auto [loss, grads] = pipeline::accumulate(old.params, xs, targets, config.microbatches);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      {.out_shardings = {shardings, P{}}, .donate_argnums = {0}});

  data::RandomState random(0);
  const Array xs = device_put(random.standard_normal({8, config.seq, config.d_model}), P{"fsdp"});
  const Array targets =
      device_put(random.standard_normal({8, config.seq, config.d_model}), P{"fsdp"});
  Array loss;
  for (int i = 0; i < 6; ++i) {
    std::tie(state, loss) = step(std::move(state), xs, targets);
    std::printf("step %d  loss %.4f\n", i, loss.item<double>());
  }
}
