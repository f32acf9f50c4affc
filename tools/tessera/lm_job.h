// The language model as the commands train and show it: flags, where its state lives, one step.
#pragma once

#include <tessera/tessera.h>
#include <tessera/train.h>

#include "flags.h"
#include "lm/model.h"

namespace tessera::cli {

struct LmFlags : TrainFlags {
  lm::Config model;
  std::string text;
  bool causal = false;
  bool no_causal = false;
  std::int64_t sample = 0;
};

using LmState = TrainState<lm::LM>;

/// Adds the flags of the model and of training; `flags` must outlive the command.
void add_lm_flags(CLI::App& command, LmFlags& flags);
/// Completes the flags by what they imply and throws UserError when they do not fit each other.
void complete(LmFlags& flags, const Mesh& mesh);

/// A batch goes over the axis data.
Shardings batch_sharding(const Mesh& mesh);
Shardings state_shardings(const LmFlags& flags, const Mesh& mesh, const LmState& shapes);
LmState make_state(const LmFlags& flags, const Mesh& mesh);
/// The same without values.
LmState abstract_state(const LmFlags& flags);

inline auto loss_and_grads(const lm::LM& params, const Array& ids) {
  return value_and_grad([&](const lm::LM& model) { return lm::next_token_loss(model(ids), ids); })(
      params);
}

/// (state, tokens i32[batch, seq]) -> (next state, loss).
inline auto make_step(std::vector<Shardings> in_shardings = {}) {
  return jit(
      [](LmState old, Array ids) {
        auto [loss, grads] = loss_and_grads(old.params, ids);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      {.in_shardings = std::move(in_shardings), .donate_argnums = {0}, .name = "train_step"});
}

}  // namespace tessera::cli
