// The language model of examples/lm, trained for a few steps inside a test.
#pragma once

#include <tessera/data.h>
#include <tessera/optim.h>

#include "lm/model.h"
#include "tests/programs/training.h"

namespace tessera::testing {

using State = TrainState<lm::LM>;

enum class Layout { replicated, fsdp };

inline State make_state(const lm::Config& config, const Mesh& mesh, Layout layout) {
  auto init = [&](Key key) {
    return State(lm::LM(nn::Scope(key), config), optim::adamw({.learning_rate = 3e-4}));
  };
  Shardings shardings;
  if (!mesh.axes().empty()) {
    const State shapes = eval_shape(init, Key(42));
    shardings = layout == Layout::fsdp ? fsdp_shardings(mesh, shapes) : replicated(mesh, shapes);
  }
  return jit(init, {.out_shardings = shardings})(Key(42));
}

inline auto loss_and_grads(const lm::LM& params, const Array& ids) {
  return value_and_grad([&](const lm::LM& model) { return lm::next_token_loss(model(ids), ids); })(
      params);
}

inline TrainingRun train(const lm::Config& config, const Mesh& mesh, Layout layout, int steps,
                         std::int64_t batch) {
  const use_mesh scope(mesh);
  State state = make_state(config, mesh, layout);
  auto step = jit(
      [](State old, Array ids) {
        auto [loss, grads] = loss_and_grads(old.params, ids);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      {.donate_argnums = {0}});
  const data::Tokens tokens =
      data::random_tokens(1234, 8192, config.seq, static_cast<std::int32_t>(config.vocab));
  TrainingRun run;
  for (int i = 0; i < steps; ++i) {
    Array ids = tokens.batch(i * batch, batch);
    if (!mesh.axes().empty()) ids = device_put(ids, P{"data"});
    Array loss;
    std::tie(state, loss) = step(std::move(state), ids);
    run.losses.push_back(loss.item<float>());
  }
  run.params_hash = checkpoint::fingerprint(checkpoint::named_arrays(state.params));
  return run;
}

}  // namespace tessera::testing
