// The state of a training run, with the names of Flax's TrainState.
//
//   TrainState<LM> state(LM(nn::Scope(key), config), optim::adamw({.learning_rate = 3e-4}));
//   state = state.apply_gradients(grads);
#pragma once

#include <tessera/ops.h>
#include <tessera/optim.h>

namespace tessera {

template <typename Model>
struct TrainState {
  Array step;  // i32[]
  Model params;
  optim::State opt_state;
  optim::Optimizer tx;

  TrainState(Model model, optim::Optimizer optimizer)
      : step(zeros({}, DType::i32)),
        params(std::move(model)),
        opt_state(optimizer.init(tree_params(params))),
        tx(std::move(optimizer)) {}

  /// One update; `grads` has the structure of the parameters.
  TrainState apply_gradients(const Model& grads,
                             std::source_location where = std::source_location::current()) const {
    const CallScope scope(where);
    TrainState next(*this);
    next.step = step + 1;
    next.params = tree_replace(
        params, tx.update(tree_leaves(params), tree_leaves(grads), next.opt_state, where));
    return next;
  }

  TESSERA_TREE(step, params, opt_state, tx)
};

}  // namespace tessera
