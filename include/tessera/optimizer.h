// What optimisers are made of: learning rates, masks, rules for single parameters, and chains of
// them. <tessera/optim.h> has the optimisers.
#pragma once

#include <map>

#include <tessera/ops.h>
#include <tessera/tree.h>

namespace TESSERA_EXPORT tessera {
namespace optim {

namespace detail {
class RateRule;
struct Part;
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
/// The same with the power `power` of the part of the way that is left.
Rate polynomial_schedule(double init_value, double end_value, double power,
                         std::int64_t transition_steps, std::int64_t transition_begin = 0,
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
/// From peak_value / div_factor to peak_value at the part `pct_start` of the steps, back until the
/// part `pct_final`, and from there to peak_value / (div_factor * final_div_factor).
Rate linear_onecycle_schedule(std::int64_t transition_steps, double peak_value,
                              double pct_start = 0.3, double pct_final = 0.85,
                              double div_factor = 25, double final_div_factor = 1e4,
                              std::source_location where = std::source_location::current());
/// The same along half cosine waves: to peak_value, and from there to the end.
Rate cosine_onecycle_schedule(std::int64_t transition_steps, double peak_value,
                              double pct_start = 0.3, double div_factor = 25,
                              double final_div_factor = 1e4,
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
    double initial = 0;  // the value of all elements before the first update
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
  /// The initial values of every slot, with the paths and specs of the parameters. If two rules of
  /// a chain have slots of the same name, the slots are called `name` and `name_2`.
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

}  // namespace optim
}  // namespace tessera
