// Optimisers with Optax's names, formulas and defaults, and the state of a training run.
//
//   TrainState<LM> state(LM(nn::Scope(key), config), optim::adamw({.learning_rate = 3e-4}));
//   state = state.apply_gradients(grads);
// An optimiser is a chain of transformations of gradients. Its result is added to the parameters.
// Updates and slots are f32, or f64 for f64 parameters. Half floats are rounded once per update.
#pragma once

#include <array>
#include <map>

#include <tessera/ops.h>
#include <tessera/tree.h>

namespace TESSERA_EXPORT tessera {
namespace optim {

namespace detail {
class RateRule;
struct Part;
using tessera::detail::walked, tessera::detail::Walk;
std::vector<Array> moved_average(Walk now, Walk old, const Operand& step_size);
}  // namespace detail

/// The state of an optimiser: the number of updates, and slots for parameters under their paths.
struct State {
  Array count;  // i32[]
  std::map<std::string, std::vector<Param>> slots;

  State();
  TESSERA_COPYABLE(State);
  TESSERA_TREE(count, slots)
};

/// A constant, or a schedule: a function of the number of updates done so far.
class Rate {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> Rate(T value)  // NOLINT(google-explicit-constructor)
      : constant_(static_cast<double>(value)) {}
  /// A custom schedule: the number of updates done, f32[] -> the rate, f32[].
  template <typename F>
  requires(!std::same_as<F, Rate> && std::invocable<const F&, const Array&>) Rate(F f)  // NOLINT
      : Rate(Schedule(std::move(f))) {}
  using Schedule = tessera::detail::Function<Array, const Array&>;
  explicit Rate(Schedule schedule);
  explicit Rate(std::shared_ptr<const detail::RateRule> rule);
  TESSERA_COPYABLE(Rate);

  std::optional<double> constant() const;  ///< empty for a schedule
  /// The rate, f32[], after `done` updates, i32[] or f32[].
  Array operator()(const Array& done) const;
  std::string key() const;

 private:
  double constant_ = 0;
  std::shared_ptr<const detail::RateRule> rule_;
};

/// Linear from init_value at transition_begin to end_value, transition_steps later. All schedules
/// throw UserError for negative numbers of steps.
Rate linear_schedule(double init_value, double end_value, std::int64_t transition_steps,
                     std::int64_t transition_begin = 0,
                     std::source_location where = std::source_location::current());
/// init_value times half a cosine wave, down to alpha * init_value.
Rate cosine_decay_schedule(double init_value, std::int64_t decay_steps, double alpha = 0,
                           double exponent = 1,
                           std::source_location where = std::source_location::current());
struct WarmupCosineOptions {
  double init_value = 0;
  double peak_value = 0;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 1;  // including the warm-up
  double end_value = 0;
  double exponent = 1;
};
Rate warmup_cosine_decay_schedule(const WarmupCosineOptions& options,
                                  std::source_location where = std::source_location::current());

/// init_value * decay_rate^(steps / transition_steps), limited by end_value.
Rate exponential_decay(double init_value, std::int64_t transition_steps, double decay_rate,
                       std::int64_t transition_begin = 0, bool staircase = false,
                       std::optional<double> end_value = {},
                       std::source_location where = std::source_location::current());
/// init_value, multiplied by each scale from that scale's step on.
Rate piecewise_constant_schedule(double init_value, const std::map<std::int64_t, double>& scales,
                                 std::source_location where = std::source_location::current());
/// Schedule i + 1 begins at boundary i, and counts its steps from there.
Rate join_schedules(const std::vector<Rate>& schedules, const std::vector<std::int64_t>& boundaries,
                    std::source_location where = std::source_location::current());

/// Which parameters a transformation changes; by default, all. In path patterns, `*` matches any
/// text, and a leading `*/` may also match nothing. A pattern without a match throws UserError.
class Mask {
 public:
  Mask();
  TESSERA_COPYABLE(Mask);
  static Mask matching(std::vector<std::string> patterns);
  static Mask except(std::vector<std::string> patterns);
  template <std::predicate<const Param&> F>
  static Mask when(F is_chosen) {
    return Mask(Choice(std::move(is_chosen)));
  }
  Mask operator!() const;
  std::vector<bool> operator()(const std::vector<Param>& parameters,
                               const std::source_location& where) const;
  std::string key() const;

 private:
  using Choice = tessera::detail::Function<bool, const Param&>;
  explicit Mask(Choice is_chosen);
  std::vector<std::string> patterns_;
  Choice is_chosen_;
  bool is_inverted_ = true;
};

/// A transformation of updates (initially the gradients), or a chain of them. Static in trees.
class Optimizer {
 public:
  /// An array that a rule keeps per parameter: its shape without the `dropped` dimensions.
  struct Slot {
    std::string name;
    std::vector<std::int64_t> dropped = {};
  };
  /// One parameter in one update.
  struct Leaf {
    const Param& parameter;
    const Array& count;                // the number of this update, from 1; a float scalar
    const std::vector<Array>& common;  // the result of Rule::common, floats in the update's dtype
    std::vector<Array>& slots;         // in the order of Rule::slots; updated in place
  };
  class Rule {
   public:
    virtual ~Rule() = default;
    virtual std::string key() const = 0;
    virtual std::vector<Slot> slots(const Param& /*parameter*/) const { return {}; }
    /// The new update, in the parameter's shape.
    virtual Array update(const Leaf& leaf, const Array& update) const = 0;
    /// Whether `common` needs the updates of all parameters, so a chain must wait for them.
    virtual bool needs_all() const { return false; }
    /// Computed once for all parameters. `done`: i32[]. `updates` is empty unless needs_all().
    virtual std::vector<Array> common(const Array& done, const std::vector<Array>& updates) const;
  };

  explicit Optimizer(std::shared_ptr<const Rule> rule);
  explicit Optimizer(std::vector<detail::Part> parts);
  TESSERA_COPYABLE(Optimizer);
  /// Zeros in every slot, with the paths and specs of the parameters. If two rules of a chain have
  /// slots of the same name, the slots are called `name` and `name_2`.
  State init(const std::vector<Param>& parameters,
             std::source_location where = std::source_location::current()) const;
  /// Returns new parameters; changes `state`. Throws UserError if the three differ in structure.
  std::vector<Array> update(const std::vector<Param>& parameters,
                            const std::vector<Array>& gradients, State& state,
                            std::source_location where = std::source_location::current()) const;
  const std::vector<detail::Part>& parts() const { return *parts_; }
  std::string tessera_key() const { return key_; }

 private:
  std::shared_ptr<const std::vector<detail::Part>> parts_;
  std::string key_;
};

/// Applies the optimisers one after the other.
Optimizer chain(const std::vector<Optimizer>& optimizers);
/// Applies `inner` to the parameters in the mask; the updates of all others pass unchanged.
Optimizer masked(const Optimizer& inner, const Mask& mask);
/// Accumulates gradients: at the last of every `every` steps, applies `inner` to the mean of their
/// gradients; the other steps change nothing. Throws UserError unless every >= 1.
Optimizer multi_steps(const Optimizer& inner, std::int64_t every,
                      std::source_location where = std::source_location::current());

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
