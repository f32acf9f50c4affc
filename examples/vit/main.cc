// Trains the vision transformer of model.h on random images, over a mesh of 4x2 virtual devices.

#include <cstdio>

#include <tessera/data.h>
#include <tessera/optim.h>

#include "model.h"

int main() {
  using namespace tessera;
  const Mesh mesh = make_mesh({{"batch", 4}, {"model", 2}});
  const use_mesh scope(mesh);
  const vit::Config config{.layers = 2, .dropout = 0.0};

  auto init = [&](Key key) {
    return TrainState(vit::VisionTransformer(nn::Scope::nnx(key), config), optim::adam());
  };
  auto state = jit(init, {.out_shardings = from_annotations(mesh)})(Key(0));

  auto step = jit(
      [](TrainState<vit::VisionTransformer> old, Array images, Array labels, Key key) {
        const nn::Mode mode = nn::Mode::train(random::fold_in(key, old.step));
        auto [loss, grads] = value_and_grad([&](const vit::VisionTransformer& model) {
          return vit::cross_entropy(model(images, mode), labels);
        })(old.params);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      {.donate_argnums = {0}});

  data::RandomState random(0);
  const Array images = device_put(random.standard_normal({32, 32, 32, 3}), P{"batch"});
  const Array labels = device_put(random.randint(0, config.classes, {32}), P{"batch"});
  Array loss;
  for (int i = 0; i < 4; ++i) {
    std::tie(state, loss) = step(std::move(state), images, labels, Key(1));
    std::printf("step %d  loss %.4f\n", i, loss.item<double>());
  }
}
