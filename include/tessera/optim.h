// Optimisers with Optax's names, formulas and defaults, and the state of a training run.
//
//   TrainState<LM> state(LM(nn::Scope(key), config), optim::adamw({.learning_rate = 3e-4}));
//   state = state.apply_gradients(grads);
// An optimiser is a chain of transformations of gradients. Its result is added to the parameters.
// Updates and slots are f32, or f64 for f64 parameters. Half floats are rounded once per update.
#pragma once

#include <array>

#include <tessera/optimizer.h>

namespace TESSERA_EXPORT tessera {
namespace optim {

namespace detail {
using tessera::detail::walked, tessera::detail::Walk;
std::vector<Array> moved_average(Walk now, Walk old, const Operand& step_size);
}  // namespace detail

// --- transformations, and optimisers, which are chains of them

Optimizer trace(double decay, bool nesterov = false);  // gradients + decay * the last momentum
Optimizer set_to_zero();                               // freezes the parameters of a mask
Optimizer scale_by_schedule(const Rate& rate);
Optimizer scale_by_learning_rate(const Rate& rate);  // times -rate
Optimizer add_decayed_weights(double weight_decay, const Mask& mask = {});
/// Clips each element to [-most, most]. This and the next throw UserError unless `most` > 0.
Optimizer clip(double most, std::source_location where = std::source_location::current());
/// Scales all updates down to the norm `most` if their joint norm is `most` or more.
Optimizer clip_by_global_norm(double most,
                              std::source_location where = std::source_location::current());
/// The square root of the sum of squares of all float leaves, added in their order: f32[] or f64[].
Array global_norm(const std::vector<Array>& leaves);
struct TrustRatioOptions {
  double min_norm = 0;  // smaller norms count as this
  double trust_coefficient = 1;
  double epsilon = 0;
};
/// Multiplies each update by trust_coefficient * the norm of its parameter / (the norm of the
/// update + epsilon), unless one of the norms is 0.
Optimizer scale_by_trust_ratio(const TrustRatioOptions& options = {});

struct SgdOptions {
  Rate learning_rate = 1e-2;
  double momentum = 0;  // 0: none
  bool nesterov = false;
};
Optimizer sgd(const SgdOptions& options = {});

struct AdamOptions {
  Rate learning_rate = 1e-3;
  double b1 = 0.9;
  double b2 = 0.999;
  double epsilon = 1e-8;    // outside the square root
  double epsilon_root = 0;  // inside it
  bool nesterov = false;
};
Optimizer adam(const AdamOptions& options = {});
Optimizer scale_by_adam(const AdamOptions& options = {});  // without the learning rate

struct AdamWOptions {
  Rate learning_rate = 1e-3;
  double b1 = 0.9;
  double b2 = 0.999;
  double epsilon = 1e-8;
  double epsilon_root = 0;
  double weight_decay = 1e-4;
  Mask mask = {};  // of the weight decay
  bool nesterov = false;
};
Optimizer adamw(const AdamWOptions& options = {});

struct AdamaxOptions {
  Rate learning_rate = 1e-3;
  double b1 = 0.9;
  double b2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  // as in Optax's adamaxw
  Mask mask = {};
};
/// Adam with the largest gradient so far, which decays, in place of the root mean square.
Optimizer adamax(const AdamaxOptions& options = {});

struct RadamOptions {
  Rate learning_rate = 1e-3;
  double b1 = 0.9;
  double b2 = 0.999;
  double epsilon = 1e-8;
  double epsilon_root = 0;
  double threshold = 5;
  bool nesterov = false;
};
/// Adam that first moves by the momentum alone: until the mean of squares stands for `threshold`
/// gradients or more. Then its steps grow to those of Adam.
Optimizer radam(const RadamOptions& options = {});

struct AdabeliefOptions {
  Rate learning_rate = 1e-3;
  double b1 = 0.9;
  double b2 = 0.999;
  double epsilon = 1e-16;
  double epsilon_root = 1e-16;
  bool nesterov = false;
};
/// Adam with the variance around the momentum in place of the mean of squares.
Optimizer adabelief(const AdabeliefOptions& options = {});

struct AdafactorOptions {
  Rate learning_rate = 1;
  std::int64_t min_dim_size_to_factor = 128;
  double decay_rate = 0.8;
  std::int64_t decay_offset = 0;
  bool multiply_by_parameter_scale = true;
  double clipping_threshold = 1;  // 0: none
  double momentum = 0;            // 0: none
  double weight_decay_rate = 0;   // not multiplied by the learning rate
  double epsilon = 1e-30;
  Mask mask = {};
};
Optimizer adafactor(const AdafactorOptions& options = {});

struct LionOptions {
  Rate learning_rate = 1e-4;
  double b1 = 0.9;
  double b2 = 0.99;
  double weight_decay = 1e-3;
  Mask mask = {};
};
Optimizer lion(const LionOptions& options = {});

struct MuonOptions {
  Rate learning_rate = 2e-2;
  std::array<double, 3> ns_coeffs = {3.4445, -4.7750, 2.0315};
  std::int64_t ns_steps = 5;
  double beta = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;  // of the matrices
  Mask mask = {};
  bool nesterov = true;
  std::optional<AdamWOptions> adam = {};      // for the rest; default: the values here, no decay
  std::optional<double> consistent_rms = {};  // 0.2 makes updates as large as Adam's
  Mask matrices = Mask::when([](const Param& x) { return x.rank() == 2; });
};
/// Momentum that Newton-Schulz makes orthogonal, for `matrices` and stacks of them; otherwise Adam.
Optimizer muon(const MuonOptions& options = {});

struct RmspropOptions {
  Rate learning_rate = 1e-3;
  double decay = 0.9;
  double epsilon = 1e-8;
  double initial_scale = 0;     // of the mean squares
  bool epsilon_in_sqrt = true;  // false: outside, as in PyTorch
  bool centered = false;        // divide by the standard deviation
  double momentum = 0;          // 0: none
  bool nesterov = false;
  bool bias_correction = false;
};
Optimizer rmsprop(const RmspropOptions& options = {});

struct AdagradOptions {
  Rate learning_rate = 1e-2;
  double initial_accumulator_value = 0.1;
  double epsilon = 1e-7;
};
Optimizer adagrad(const AdagradOptions& options = {});

struct AmsgradOptions {
  Rate learning_rate = 1e-3;
  double b1 = 0.9;
  double b2 = 0.999;
  double epsilon = 1e-8;
  double epsilon_root = 0;
};
Optimizer amsgrad(const AmsgradOptions& options = {});

struct AdadeltaOptions {
  Rate learning_rate = 1;
  double rho = 0.9;
  double epsilon = 1e-6;
  double weight_decay = 0;  // added to the gradients
  Mask mask = {};
};
Optimizer adadelta(const AdadeltaOptions& options = {});

struct LambOptions {
  Rate learning_rate = 1e-3;
  double b1 = 0.9;
  double b2 = 0.999;
  double epsilon = 1e-6;
  double epsilon_root = 0;
  double weight_decay = 0;
  Mask mask = {};
};
/// Adam with a trust ratio for each parameter: for large batches.
Optimizer lamb(const LambOptions& options = {});

struct LarsOptions {
  Rate learning_rate = 1e-1;
  double weight_decay = 0;
  Mask weight_decay_mask = {};
  double trust_coefficient = 1e-3;
  double epsilon = 0;
  Mask trust_ratio_mask = {};
  double momentum = 0.9;
  bool nesterov = false;
};
/// Momentum of updates with a trust ratio for each parameter: for large batches.
Optimizer lars(const LarsOptions& options = {});

struct NovogradOptions {
  Rate learning_rate = 1e-3;
  double b1 = 0.9;
  double b2 = 0.25;
  double epsilon = 1e-6;
  double epsilon_root = 0;
  double weight_decay = 0;
};
/// Momentum of gradients divided by their norm, of which each parameter has one average.
Optimizer novograd(const NovogradOptions& options = {});

struct YogiOptions {
  Rate learning_rate = 1e-2;
  double b1 = 0.9;
  double b2 = 0.999;
  double epsilon = 1e-3;
};
Optimizer yogi(const YogiOptions& options = {});

/// A moving average: step_size * now + (1 - step_size) * old. Buffers are copied from `now`.
template <typename Model>
Model incremental_update(const Model& now, const Model& old, Operand step_size) {
  using detail::walked, detail::Walk;
  return tree_replace(now, detail::moved_average(walked(now, Walk::Want::paths),
                                                 walked(old, Walk::Want::paths), step_size));
}

}  // namespace optim

/// The parameters, the optimiser state, and the number of steps done.
template <typename Model>
struct TrainState {
  Array step;  // i32[]
  Model params;
  optim::State opt_state;
  optim::Optimizer tx;

  TrainState(Model model, optim::Optimizer optimizer,
             std::source_location where = std::source_location::current())
      : step(zeros({}, DType::i32)),
        params(std::move(model)),
        opt_state(optimizer.init(tree_params(params), where)),
        tx(std::move(optimizer)) {}

  /// Does one update. `model`: the model that a forward pass with buffers returned.
  [[nodiscard]] TrainState apply_gradients(
      const Model& grads, const std::optional<Model>& model = {},
      std::source_location where = std::source_location::current()) const {
    const CallScope scope(where);
    using detail::walked, detail::Walk;
    detail::check_keys("apply_gradients", walked(params, Walk::Want::leaves),
                       walked(grads, Walk::Want::leaves), where);
    TrainState next(*this);
    next.step = step + 1;
    if (model) next.params = *model;
    next.params = tree_replace(
        params, tx.update(tree_params(next.params), tree_leaves(grads), next.opt_state, where));
    return next;
  }
  TESSERA_TREE(step, params, opt_state, tx)
};

}  // namespace tessera
