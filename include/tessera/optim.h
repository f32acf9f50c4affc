// Optimisers with Optax's formulas, and the state of a training run with Flax's names.
//
//   TrainState<LM> state(LM(nn::Scope(key), config), optim::adamw({.learning_rate = 3e-4}));
//   state = state.apply_gradients(grads);
#pragma once

#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include <tessera/ops.h>
#include <tessera/tree.h>

namespace tessera::optim {

/// What an optimiser remembers: the number of updates, and slots that mirror the parameters.
struct State {
  Array count;  // i32[]
  std::map<std::string, std::vector<Param>> slots;

  State();
  TESSERA_COPYABLE(State);
  TESSERA_TREE(count, slots)
};

/// How to change parameters, leaf by leaf. A static field of trees.
class Optimizer {
 public:
  class Rule {
   public:
    virtual ~Rule() = default;
    virtual std::vector<std::string> slot_names() const = 0;
    /// The new parameter; `slots` has one array per name and is updated. `count` is the number of
    /// this update, from 1, as f32[].
    virtual Array update(const Array& parameter, const Array& gradient, const Array& count,
                         std::vector<Array>& slots) const = 0;
    virtual std::string key() const = 0;
  };

  explicit Optimizer(std::shared_ptr<const Rule> rule);
  TESSERA_COPYABLE(Optimizer);

  /// Zeros in every slot, with the paths and specs of the parameters.
  State init(const std::vector<Param>& parameters) const;
  /// New parameters; `state` is updated. Throws UserError when parameters, gradients and state
  /// differ in structure.
  std::vector<Array> update(const std::vector<Array>& parameters,
                            const std::vector<Array>& gradients, State& state,
                            std::source_location where = std::source_location::current()) const;
  std::string tessera_key() const { return rule_->key(); }

 private:
  std::shared_ptr<const Rule> rule_;
};

struct AdamOptions {
  double learning_rate = 1e-3;
  double b1 = 0.9;
  double b2 = 0.999;
  double epsilon = 1e-8;  // outside of the root
};
Optimizer adam(const AdamOptions& options = {});

struct AdamWOptions {
  double learning_rate = 1e-3;
  double b1 = 0.9;
  double b2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-4;  // of every parameter
};
Optimizer adamw(const AdamWOptions& options = {});

struct SgdOptions {
  double learning_rate = 1e-2;
};
Optimizer sgd(const SgdOptions& options = {});

}  // namespace tessera::optim

namespace tessera {

/// Parameters, what the optimiser remembers, and the number of steps done.
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
