// Trains the language model of model.h, data parallel over eight virtual devices.

#include <cstdio>

#include <tessera/data.h>
#include <tessera/optim.h>

#include "model.h"

int main() {
  using namespace tessera;
  const lm::Config config;
  const Mesh mesh = make_mesh({{"data", 8}});
  const use_mesh scope(mesh);

  auto init = [&](Key key) {
    return TrainState(lm::LM(nn::Scope(key), config), optim::adamw({.learning_rate = 3e-4}));
  };
  const auto shapes = eval_shape(init, Key(42));  // nothing is allocated
  auto state = jit(init, {.out_shardings = replicated(mesh, shapes)})(Key(42));

  auto step = jit(
      [](TrainState<lm::LM> old, Array ids) {
        auto [loss, grads] = value_and_grad(
            [&](const lm::LM& model) { return lm::next_token_loss(model(ids), ids); })(old.params);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      {.donate_argnums = {0}});

  const data::Tokens tokens = data::random_tokens(1234, 8192, config.seq, 512);
  Array loss;
  for (int i = 0; i < 5; ++i) {
    const Array batch = device_put(tokens.batch(32 * i, 32), P{"data"});
    std::tie(state, loss) = step(std::move(state), batch);
    std::printf("step %d  loss %.4f\n", i, loss.item<double>());
  }
}
