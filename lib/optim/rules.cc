// Transformations that look at one parameter at a time, and norms.
#include <array>
#include <charconv>
#include <limits>

#include <tessera/error.h>

#include "optim/parts.h"

namespace tessera::optim {

namespace {

using detail::bias_correction;
using detail::corrected_momentum;
using detail::moving_average;
using detail::over_root;
using detail::text;
using detail::without_subnormal;
using Leaf = Optimizer::Leaf;
using Slot = Optimizer::Slot;

class Adam final : public Optimizer::Rule {
 public:
  explicit Adam(const AdamOptions& options) : o_(options) {}

  std::vector<Slot> slots(const Param& /*parameter*/) const override { return {{"mu"}, {"nu"}}; }
  Array update(const Leaf& leaf, const Array& gradient) const override {
    Array& mu = leaf.slots[0];
    Array& nu = leaf.slots[1];
    mu = moving_average(mu, gradient, o_.b1);
    nu = moving_average(nu, square(gradient), o_.b2);
    const Array mu_hat = corrected_momentum(mu, gradient, o_.b1, o_.nesterov, leaf.count);
    const Array nu_hat = nu / bias_correction(o_.b2, leaf.count);
    return over_root(mu_hat, nu_hat, o_.epsilon, o_.epsilon_root);
  }
  std::string key() const override {
    return "adam " + text(o_.b1) + " " + text(o_.b2) + " " + text(o_.epsilon) + " " +
           text(o_.epsilon_root) + (o_.nesterov ? " nesterov" : "");
  }

 private:
  AdamOptions o_;
};

class Lion final : public Optimizer::Rule {
 public:
  Lion(double b1, double b2) : b1_(b1), b2_(b2) {}
  std::vector<Slot> slots(const Param& /*parameter*/) const override { return {{"mu"}}; }
  Array update(const Leaf& leaf, const Array& gradient) const override {
    Array& mu = leaf.slots[0];
    const Array old = mu;
    mu = moving_average(old, gradient, b2_);
    return sign(gradient * (1.0 - b1_) + old * b1_);
  }
  std::string key() const override { return "lion " + text(b1_) + " " + text(b2_); }

 private:
  double b1_, b2_;
};

class Trace final : public Optimizer::Rule {
 public:
  Trace(double decay, bool nesterov) : decay_(decay), nesterov_(nesterov) {}
  std::vector<Slot> slots(const Param& /*parameter*/) const override { return {{"trace"}}; }
  Array update(const Leaf& leaf, const Array& gradient) const override {
    Array& sum = leaf.slots[0];
    sum = without_subnormal(gradient + sum * decay_);
    return nesterov_ ? gradient + sum * decay_ : sum;
  }
  std::string key() const override {
    return "trace " + text(decay_) + (nesterov_ ? " nesterov" : "");
  }

 private:
  double decay_;
  bool nesterov_;
};

class Ema final : public Optimizer::Rule {
 public:
  explicit Ema(double decay) : decay_(decay) {}
  std::vector<Slot> slots(const Param& /*parameter*/) const override { return {{"ema"}}; }
  Array update(const Leaf& leaf, const Array& update) const override {
    Array& mean = leaf.slots[0];
    mean = moving_average(mean, update, decay_);
    return mean;
  }
  std::string key() const override { return "ema " + text(decay_); }

 private:
  double decay_;
};

class Scale final : public Optimizer::Rule {
 public:
  Scale(Rate rate, double sign) : rate_(std::move(rate)), sign_(sign) {}
  std::vector<Array> common(const Array& done,
                            const std::vector<Array>& /*updates*/) const override {
    if (rate_.constant()) return {};
    const Array rate = rate_(done);
    return {sign_ == 1.0 ? rate : rate * sign_};
  }
  Array update(const Leaf& leaf, const Array& update) const override {
    if (rate_.constant()) return update * (*rate_.constant() * sign_);
    return update * leaf.common[0];
  }
  std::string key() const override { return "scale " + text(sign_) + " " + rate_.key(); }

 private:
  Rate rate_;
  double sign_;
};

class Decay final : public Optimizer::Rule {
 public:
  explicit Decay(double rate) : rate_(rate) {}
  Array update(const Leaf& leaf, const Array& update) const override {
    return update + leaf.parameter * rate_;
  }
  std::string key() const override { return "decay " + text(rate_); }

 private:
  double rate_;
};

class Zero final : public Optimizer::Rule {
 public:
  Array update(const Leaf& /*leaf*/, const Array& update) const override {
    return zeros_like(update);
  }
  std::string key() const override { return "zero"; }
};

class Clip final : public Optimizer::Rule {
 public:
  explicit Clip(double most) : most_(most) {}
  Array update(const Leaf& /*leaf*/, const Array& update) const override {
    return clamp(-most_, update, most_);
  }
  std::string key() const override { return "clip " + text(most_); }

 private:
  double most_;
};

class ClipNorm final : public Optimizer::Rule {
 public:
  explicit ClipNorm(double most) : most_(most) {}
  bool needs_all() const override { return true; }
  std::vector<Array> common(const Array& /*done*/,
                            const std::vector<Array>& updates) const override {
    const Array norm = global_norm(updates);
    return {norm, norm < most_};
  }
  Array update(const Leaf& leaf, const Array& update) const override {
    return where(leaf.common[1], update, update / leaf.common[0] * most_);
  }
  std::string key() const override { return "clip norm " + text(most_); }

 private:
  double most_;
};

Array root_mean_square(const Array& x) { return sqrt(mean(square(x))); }

class ClipBlock final : public Optimizer::Rule {
 public:
  explicit ClipBlock(double most) : most_(most) {}
  Array update(const Leaf& /*leaf*/, const Array& update) const override {
    return update / maximum(root_mean_square(update) / most_, 1.0);
  }
  std::string key() const override { return "clip block " + text(most_); }

 private:
  double most_;
};

class ParamScale final : public Optimizer::Rule {
 public:
  explicit ParamScale(double least) : least_(least) {}
  Array update(const Leaf& leaf, const Array& update) const override {
    return update * maximum(root_mean_square(leaf.parameter), least_);
  }
  std::string key() const override { return "parameter scale " + text(least_); }

 private:
  double least_;
};

void check_limit(const std::string& name, double most, const std::source_location& where) {
  if (most > 0.0) return;
  throw UserError({.what = name + ": the limit is not positive",
                   .where = where,
                   .found = text(most),
                   .wanted = "a number above 0",
                   .cure = "write for example " + name + "(1.0), or leave it out of the chain"});
}

}  // namespace

namespace detail {

std::string text(double value) {
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), end};
}

Array bias_correction(double decay, const Array& count) { return 1.0 - pow(decay, count); }

Array without_subnormal(const Array& x) {
  const double least = x.dtype() == DType::f64 ? std::numeric_limits<double>::min()
                                               : std::numeric_limits<float>::min();
  return where(abs(x) < least, 0.0, x);
}

Array moving_average(const Array& old, const Array& now, double decay) {
  return without_subnormal(now * (1.0 - decay) + old * decay);
}

Array corrected_momentum(const Array& mu, const Array& gradient, double decay, bool nesterov,
                         const Array& count) {
  Array mu_hat = mu / bias_correction(decay, nesterov ? count + 1.0 : count);
  if (!nesterov) return mu_hat;
  const Array now = gradient / bias_correction(decay, count);
  return mu_hat * decay + now * (1.0 - decay);
}

namespace {

/// Computed in f32 at least, so that small steps of half floats are not lost before the sum.
Array moved(const Array& average, const Array& now, const Operand& step_size) {
  const DType dtype = average.dtype();
  const DType wide = is_half(dtype) ? DType::f32 : dtype;
  const Array old = astype(average, wide);
  const Operand step = step_size.is_number() ? step_size : astype(step_size, wide);
  return astype(old + step * (astype(now, wide) - old), dtype);
}

}  // namespace

std::vector<Array> moved_average(Walk now_walk, Walk old_walk, const Operand& step_size) {
  const CallScope scope(step_size.where);
  const std::vector<Param> now = tessera::detail::params_of(now_walk);
  const std::vector<Param> old = tessera::detail::params_of(old_walk);
  if (now.size() != old.size()) {
    throw UserError({.what = "incremental_update: the trees differ in structure",
                     .where = step_size.where,
                     .found = std::to_string(old.size()) + " leaves",
                     .wanted = std::to_string(now.size()) + " leaves",
                     .cure = "begin the average as a copy of the model"});
  }
  tessera::detail::check_keys("incremental_update", now_walk, old_walk, step_size.where);
  std::vector<Array> result;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].shape() != old[i].shape()) {
      throw UserError({.what = "incremental_update: the average has another shape than the model",
                       .where = step_size.where,
                       .found = to_string(old[i].type()) + " for parameter " + now[i].path(),
                       .wanted = to_string(now[i].type()),
                       .cure = "begin the average as a copy of the model"});
    }
    const bool is_averaged = now[i].is_trained() && is_float(now[i].dtype());
    result.push_back(is_averaged ? moved(old[i], now[i], step_size) : now[i].value());
  }
  return result;
}

Array over_root(const Array& update, const Array& squares, double epsilon, double epsilon_root) {
  const Array inside = epsilon_root == 0.0 ? squares : squares + epsilon_root;
  return update / (sqrt(inside) + epsilon);
}

Optimizer scale_by_lion(double b1, double b2) { return make<Lion>(b1, b2); }
Optimizer ema(double decay) { return make<Ema>(decay); }
Optimizer clip_by_block_rms(double most) { return make<ClipBlock>(most); }
Optimizer scale_by_param_block_rms(double least) { return make<ParamScale>(least); }

}  // namespace detail

std::vector<Array> Optimizer::Rule::common(const Array& /*done*/,
                                           const std::vector<Array>& /*updates*/) const {
  return {};
}

Array global_norm(const std::vector<Array>& leaves) {
  Array total;
  for (const Array& leaf : leaves) {
    if (!is_float(leaf.dtype())) continue;
    Array part = sum(square(is_half(leaf.dtype()) ? astype(leaf, DType::f32) : leaf));
    if (!total.is_empty() && total.dtype() != part.dtype()) {
      Array& narrow = total.dtype() == DType::f64 ? part : total;
      narrow = astype(narrow, DType::f64);
    }
    total = total.is_empty() ? part : total + part;
  }
  return total.is_empty() ? zeros({}) : sqrt(total);
}

Optimizer scale_by_adam(const AdamOptions& options) { return detail::make<Adam>(options); }
Optimizer trace(double decay, bool nesterov) { return detail::make<Trace>(decay, nesterov); }
Optimizer set_to_zero() { return detail::make<Zero>(); }
Optimizer scale_by_schedule(const Rate& rate) { return detail::make<Scale>(rate, 1.0); }
Optimizer scale_by_learning_rate(const Rate& rate) { return detail::make<Scale>(rate, -1.0); }

Optimizer add_decayed_weights(double weight_decay, const Mask& mask) {
  return masked(detail::make<Decay>(weight_decay), mask);
}

Optimizer clip(double most, std::source_location where) {
  check_limit("clip", most, where);
  return detail::make<Clip>(most);
}

Optimizer clip_by_global_norm(double most, std::source_location where) {
  check_limit("clip_by_global_norm", most, where);
  return detail::make<ClipNorm>(most);
}

}  // namespace tessera::optim
