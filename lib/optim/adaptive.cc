// Transformations that scale each element by the sizes of its gradients so far, and trust ratios.
#include <cmath>

#include <tessera/linalg.h>

#include "optim/parts.h"

namespace tessera::optim {

namespace detail {

namespace {

using Leaf = Optimizer::Leaf;
using Slot = Optimizer::Slot;

class Rms final : public Optimizer::Rule {
 public:
  explicit Rms(const RmspropOptions& options) : o_(options) {}

  std::vector<Slot> slots(const Param& /*parameter*/) const override {
    const Slot nu{.name = "nu", .initial = o_.initial_scale};
    return o_.centered ? std::vector<Slot>{nu, {.name = "mu"}} : std::vector<Slot>{nu};
  }
  Array update(const Leaf& leaf, const Array& gradient) const override {
    Array& nu = leaf.slots[0];
    nu = moving_average(nu, square(gradient), o_.decay);
    Array spread = corrected(nu, leaf.count);
    if (o_.centered) {
      Array& mu = leaf.slots[1];
      mu = moving_average(mu, gradient, o_.decay);
      // Rounding must not make a variance of about 0 negative.
      spread = maximum(spread - square(corrected(mu, leaf.count)), 0.0);
    }
    if (o_.epsilon_in_sqrt) return gradient * rsqrt(spread + o_.epsilon);
    return gradient / (sqrt(spread) + o_.epsilon);
  }
  std::string key() const override {
    return "rms " + text(o_.decay) + " " + text(o_.epsilon) + " " + text(o_.initial_scale) +
           (o_.epsilon_in_sqrt ? " inside" : "") + (o_.centered ? " centered" : "") +
           (o_.bias_correction ? " corrected" : "");
  }

 private:
  Array corrected(const Array& average, const Array& count) const {
    return o_.bias_correction ? average / bias_correction(o_.decay, count) : average;
  }

  RmspropOptions o_;
};

class Rss final : public Optimizer::Rule {
 public:
  explicit Rss(const AdagradOptions& options) : o_(options) {}

  std::vector<Slot> slots(const Param& /*parameter*/) const override {
    return {{.name = "sum_of_squares", .initial = o_.initial_accumulator_value}};
  }
  Array update(const Leaf& leaf, const Array& gradient) const override {
    Array& sum = leaf.slots[0];
    sum = without_subnormal(sum + square(gradient));
    return gradient * where(sum > 0.0, rsqrt(sum + o_.epsilon), 0.0);
  }
  std::string key() const override {
    return "rss " + text(o_.initial_accumulator_value) + " " + text(o_.epsilon);
  }

 private:
  AdagradOptions o_;
};

class Amsgrad final : public Optimizer::Rule {
 public:
  explicit Amsgrad(const AmsgradOptions& options) : o_(options) {}

  std::vector<Slot> slots(const Param& /*parameter*/) const override {
    return {{"mu"}, {"nu"}, {"nu_max"}};
  }
  Array update(const Leaf& leaf, const Array& gradient) const override {
    Array &mu = leaf.slots[0], &nu = leaf.slots[1], &most = leaf.slots[2];
    mu = moving_average(mu, gradient, o_.b1);
    nu = moving_average(nu, square(gradient), o_.b2);
    most = maximum(most, nu / bias_correction(o_.b2, leaf.count));
    return over_root(mu / bias_correction(o_.b1, leaf.count), most, o_.epsilon, o_.epsilon_root);
  }
  std::string key() const override {
    return "amsgrad " + text(o_.b1) + " " + text(o_.b2) + " " + text(o_.epsilon) + " " +
           text(o_.epsilon_root);
  }

 private:
  AmsgradOptions o_;
};

class Adamax final : public Optimizer::Rule {
 public:
  explicit Adamax(const AdamaxOptions& options) : o_(options) {}

  std::vector<Slot> slots(const Param& /*parameter*/) const override { return {{"mu"}, {"nu"}}; }
  Array update(const Leaf& leaf, const Array& gradient) const override {
    Array &mu = leaf.slots[0], &nu = leaf.slots[1];
    mu = moving_average(mu, gradient, o_.b1);
    nu = maximum(abs(gradient) + o_.epsilon, nu * o_.b2);
    return mu / bias_correction(o_.b1, leaf.count) / nu;
  }
  std::string key() const override {
    return "adamax " + text(o_.b1) + " " + text(o_.b2) + " " + text(o_.epsilon);
  }

 private:
  AdamaxOptions o_;
};

class Radam final : public Optimizer::Rule {
 public:
  explicit Radam(const RadamOptions& options) : o_(options) {}

  std::vector<Slot> slots(const Param& /*parameter*/) const override { return {{"mu"}, {"nu"}}; }
  Array update(const Leaf& leaf, const Array& gradient) const override {
    Array &mu = leaf.slots[0], &nu = leaf.slots[1];
    mu = moving_average(mu, gradient, o_.b1);
    nu = moving_average(nu, square(gradient), o_.b2);
    const Array momentum = corrected_momentum(mu, gradient, o_.b1, o_.nesterov, leaf.count);
    const Array squares = nu / bias_correction(o_.b2, leaf.count);
    // How many gradients the mean of squares stands for: now, and after many updates.
    const double most = 2.0 / (1.0 - o_.b2) - 1.0;
    const Array log_decayed = leaf.count * std::log(o_.b2);
    const Array length = most + 2.0 * leaf.count * exp(log_decayed) / expm1(log_decayed);
    const Array variance =
        (length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length);
    const Array is_known = length >= o_.threshold;
    return where(is_known,
                 sqrt(where(is_known, variance, 1.0)) *
                     over_root(momentum, squares, o_.epsilon, o_.epsilon_root),
                 momentum);
  }
  std::string key() const override {
    return "radam " + text(o_.b1) + " " + text(o_.b2) + " " + text(o_.epsilon) + " " +
           text(o_.epsilon_root) + " " + text(o_.threshold) + (o_.nesterov ? " nesterov" : "");
  }

 private:
  RadamOptions o_;
};

class Belief final : public Optimizer::Rule {
 public:
  explicit Belief(const AdabeliefOptions& options) : o_(options) {}

  std::vector<Slot> slots(const Param& /*parameter*/) const override { return {{"mu"}, {"nu"}}; }
  Array update(const Leaf& leaf, const Array& gradient) const override {
    Array &mu = leaf.slots[0], &nu = leaf.slots[1];
    mu = moving_average(mu, gradient, o_.b1);
    nu = moving_average(nu, square(gradient - mu), o_.b2) + o_.epsilon_root;
    const Array momentum = corrected_momentum(mu, gradient, o_.b1, o_.nesterov, leaf.count);
    return over_root(momentum, nu / bias_correction(o_.b2, leaf.count), o_.epsilon, 0.0);
  }
  std::string key() const override {
    return "belief " + text(o_.b1) + " " + text(o_.b2) + " " + text(o_.epsilon) + " " +
           text(o_.epsilon_root) + (o_.nesterov ? " nesterov" : "");
  }

 private:
  AdabeliefOptions o_;
};

class Adadelta final : public Optimizer::Rule {
 public:
  explicit Adadelta(const AdadeltaOptions& options) : o_(options) {}

  std::vector<Slot> slots(const Param& /*parameter*/) const override { return {{"e_g"}, {"e_x"}}; }
  Array update(const Leaf& leaf, const Array& gradient) const override {
    Array &gradients = leaf.slots[0], &updates = leaf.slots[1];
    gradients = moving_average(gradients, square(gradient), o_.rho);
    const Array update = gradient * (sqrt(updates + o_.epsilon) / sqrt(gradients + o_.epsilon));
    updates = moving_average(updates, square(update), o_.rho);
    return update;
  }
  std::string key() const override { return "adadelta " + text(o_.rho) + " " + text(o_.epsilon); }

 private:
  AdadeltaOptions o_;
};

class Novograd final : public Optimizer::Rule {
 public:
  explicit Novograd(const NovogradOptions& options) : o_(options) {}

  /// nu is one number for the whole parameter.
  std::vector<Slot> slots(const Param& parameter) const override {
    Slot nu{.name = "nu"};
    for (std::int64_t axis = 0; axis < parameter.rank(); ++axis) nu.dropped.push_back(axis);
    return {{"mu"}, nu};
  }
  Array update(const Leaf& leaf, const Array& gradient) const override {
    Array &mu = leaf.slots[0], &nu = leaf.slots[1];
    const Array squares = sum(square(gradient));
    nu = where(equal(leaf.count, 1.0), squares, moving_average(nu, squares, o_.b2));
    Array direction = over_root(gradient, nu, o_.epsilon, o_.epsilon_root);
    if (o_.weight_decay != 0.0) direction = direction + leaf.parameter * o_.weight_decay;
    mu = without_subnormal(mu * o_.b1 + direction);
    return mu;
  }
  std::string key() const override {
    return "novograd " + text(o_.b1) + " " + text(o_.b2) + " " + text(o_.epsilon) + " " +
           text(o_.epsilon_root) + " " + text(o_.weight_decay);
  }

 private:
  NovogradOptions o_;
};

class Yogi final : public Optimizer::Rule {
 public:
  explicit Yogi(const YogiOptions& options) : o_(options) {}

  std::vector<Slot> slots(const Param& /*parameter*/) const override {
    constexpr double kInitial = 1e-6;
    return {{.name = "mu", .initial = kInitial}, {.name = "nu", .initial = kInitial}};
  }
  Array update(const Leaf& leaf, const Array& gradient) const override {
    Array &mu = leaf.slots[0], &nu = leaf.slots[1];
    const Array squares = square(gradient);
    mu = moving_average(mu, gradient, o_.b1);
    nu = without_subnormal(nu - sign(nu - squares) * squares * (1.0 - o_.b2));
    return over_root(mu / bias_correction(o_.b1, leaf.count),
                     nu / bias_correction(o_.b2, leaf.count), o_.epsilon, 0.0);
  }
  std::string key() const override {
    return "yogi " + text(o_.b1) + " " + text(o_.b2) + " " + text(o_.epsilon);
  }

 private:
  YogiOptions o_;
};

class TrustRatio final : public Optimizer::Rule {
 public:
  explicit TrustRatio(const TrustRatioOptions& options) : o_(options) {}

  Array update(const Leaf& leaf, const Array& update) const override {
    const Array of_parameter = maximum(norm(leaf.parameter), o_.min_norm);
    const Array of_update = maximum(norm(update), o_.min_norm);
    const Array is_zero = equal(of_parameter, 0.0) || equal(of_update, 0.0);
    const Array ratio = of_parameter * o_.trust_coefficient / (of_update + o_.epsilon);
    return update * where(is_zero, 1.0, ratio);
  }
  std::string key() const override {
    return "trust ratio " + text(o_.min_norm) + " " + text(o_.trust_coefficient) + " " +
           text(o_.epsilon);
  }

 private:
  TrustRatioOptions o_;
};

}  // namespace

}  // namespace detail

Optimizer scale_by_trust_ratio(const TrustRatioOptions& o) {
  return detail::make<detail::TrustRatio>(o);
}

Optimizer rmsprop(const RmspropOptions& o) {
  std::vector<Optimizer> parts = {detail::make<detail::Rms>(o),
                                  scale_by_learning_rate(o.learning_rate)};
  if (o.momentum != 0.0) parts.push_back(trace(o.momentum, o.nesterov));
  return chain(parts);
}

Optimizer adagrad(const AdagradOptions& o) {
  return chain({detail::make<detail::Rss>(o), scale_by_learning_rate(o.learning_rate)});
}

Optimizer amsgrad(const AmsgradOptions& o) {
  return chain({detail::make<detail::Amsgrad>(o), scale_by_learning_rate(o.learning_rate)});
}

Optimizer adamax(const AdamaxOptions& o) {
  std::vector<Optimizer> parts = {detail::make<detail::Adamax>(o)};
  if (o.weight_decay != 0.0) parts.push_back(add_decayed_weights(o.weight_decay, o.mask));
  parts.push_back(scale_by_learning_rate(o.learning_rate));
  return chain(parts);
}

Optimizer radam(const RadamOptions& o) {
  return chain({detail::make<detail::Radam>(o), scale_by_learning_rate(o.learning_rate)});
}

Optimizer adabelief(const AdabeliefOptions& o) {
  return chain({detail::make<detail::Belief>(o), scale_by_learning_rate(o.learning_rate)});
}

Optimizer adadelta(const AdadeltaOptions& o) {
  std::vector<Optimizer> parts;
  if (o.weight_decay != 0.0) parts.push_back(add_decayed_weights(o.weight_decay, o.mask));
  parts.push_back(detail::make<detail::Adadelta>(o));
  parts.push_back(scale_by_learning_rate(o.learning_rate));
  return chain(parts);
}

Optimizer novograd(const NovogradOptions& o) {
  return chain({detail::make<detail::Novograd>(o), scale_by_learning_rate(o.learning_rate)});
}

Optimizer yogi(const YogiOptions& o) {
  return chain({detail::make<detail::Yogi>(o), scale_by_learning_rate(o.learning_rate)});
}

Optimizer lamb(const LambOptions& o) {
  std::vector<Optimizer> parts = {scale_by_adam(
      {.b1 = o.b1, .b2 = o.b2, .epsilon = o.epsilon, .epsilon_root = o.epsilon_root})};
  if (o.weight_decay != 0.0) parts.push_back(add_decayed_weights(o.weight_decay, o.mask));
  parts.push_back(scale_by_trust_ratio());
  parts.push_back(scale_by_learning_rate(o.learning_rate));
  return chain(parts);
}

Optimizer lars(const LarsOptions& o) {
  const Optimizer ratio =
      scale_by_trust_ratio({.trust_coefficient = o.trust_coefficient, .epsilon = o.epsilon});
  std::vector<Optimizer> parts;
  if (o.weight_decay != 0.0) {
    parts.push_back(add_decayed_weights(o.weight_decay, o.weight_decay_mask));
  }
  parts.push_back(masked(ratio, o.trust_ratio_mask));
  parts.push_back(scale_by_learning_rate(o.learning_rate));
  if (o.momentum != 0.0) parts.push_back(trace(o.momentum, o.nesterov));
  return chain(parts);
}

}  // namespace tessera::optim
