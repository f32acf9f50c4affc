// The vision transformer of examples/vit, trained for a few steps inside a test.
#pragma once

#include <tessera/data.h>
#include <tessera/optim.h>

#include "tests/programs/training.h"
#include "vit/model.h"

namespace tessera::testing {

using State = TrainState<vit::VisionTransformer>;

inline State make_state(const vit::Config& config, const Mesh& mesh) {
  const auto init = [&](Key key) {
    return State(vit::VisionTransformer(nn::Scope::nnx(key), config), optim::adam());
  };
  const Shardings shardings = mesh.axes().empty() ? Shardings() : from_annotations(mesh);
  return jit(init, {.out_shardings = shardings})(Key(0));
}

struct Images {
  std::int64_t batch;
  std::int64_t size;
};

inline TrainingRun train(const vit::Config& config, const Mesh& mesh, int steps,
                         const Images& sizes) {
  const use_mesh scope(mesh);
  State state = make_state(config, mesh);
  const auto step = jit([](State old, Array images, Array labels, Key key) {
    const nn::Mode mode = nn::Mode::train(random::fold_in(key, old.step));
    auto [loss, grads] = value_and_grad([&](const vit::VisionTransformer& model) {
      return vit::cross_entropy(model(images, mode), labels);
    })(old.params);
    return std::tuple(old.apply_gradients(grads), loss);
  });
  data::RandomState random(0);
  Array images = random.standard_normal({sizes.batch, sizes.size, sizes.size, 3});
  Array labels = random.randint(0, config.classes, {sizes.batch});
  if (!mesh.axes().empty()) {
    images = device_put(images, P{"batch"});
    labels = device_put(labels, P{"batch"});
  }
  TrainingRun run;
  for (int i = 0; i < steps; ++i) {
    Array loss;
    std::tie(state, loss) = step(state, images, labels, Key(7));
    run.losses.push_back(loss.item<float>());
  }
  run.params_hash = checkpoint::fingerprint(checkpoint::named_arrays(state.params));
  return run;
}

}  // namespace tessera::testing
