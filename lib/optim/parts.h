// The parts that optimisers are made of.
#pragma once

#include <tessera/optim.h>

namespace tessera::optim::detail {

/// A rule, restricted to the parameters that its masks choose.
struct Part {
  std::shared_ptr<const Optimizer::Rule> rule;
  std::vector<Mask> masks = {};
  std::int64_t every = 1;       // the rule takes part in every n-th step
  bool needs_matrices = false;  // must get at least one matrix, and no other parameters
};

/// One rule as an optimiser.
template <typename Rule, typename... Args>
Optimizer make(Args&&... args) {
  return Optimizer(std::make_shared<Rule>(std::forward<Args>(args)...));
}

class RateRule {
 public:
  virtual ~RateRule() = default;
  /// f32[]; `done`: f32[], a whole number.
  virtual Array at(const Array& done) const = 0;
  virtual std::string key() const = 0;
};

/// A text that differs for different numbers.
std::string text(double value);

/// The factor 1 - decay^count that corrects a moving average for starting at zero, a scalar of the
/// dtype of `count`.
Array bias_correction(double decay, const Array& count);

/// now * (1 - decay) + old * decay, without subnormal numbers.
Array moving_average(const Array& old, const Array& now, double decay);
/// A moving average of gradients, corrected for its start at zero. With `nesterov`, it is the
/// average after one more step with this gradient. `count`: the number of this update.
Array corrected_momentum(const Array& mu, const Array& gradient, double decay, bool nesterov,
                         const Array& count);

/// update / (sqrt(squares + epsilon_root) + epsilon)
Array over_root(const Array& update, const Array& squares, double epsilon, double epsilon_root);

/// Replaces subnormal numbers by 0, as XLA does on CPUs. A moving average that no longer gets
/// gradients would otherwise stay subnormal forever, since 0.9 times the least number is rounded to
/// that number. Processors take many times as long for subnormal numbers.
Array without_subnormal(const Array& x);

Optimizer scale_by_factored_rms(const AdafactorOptions& options);
Optimizer clip_by_block_rms(double most);
/// Multiplies by the root mean square of the parameter, or by `least` if that is larger.
Optimizer scale_by_param_block_rms(double least);
Optimizer ema(double decay);
Optimizer scale_by_lion(double b1, double b2);
Optimizer scale_by_muon(const MuonOptions& options);

}  // namespace tessera::optim::detail
