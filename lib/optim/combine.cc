// Transformations made from other transformations.
#include <tessera/error.h>

#include "optim/parts.h"

namespace tessera::optim {

namespace {

using detail::Part;
using Leaf = Optimizer::Leaf;

/// The mean of the gradients since the last update.
class Accumulate final : public Optimizer::Rule {
 public:
  explicit Accumulate(std::int64_t every) : every_(every) {}
  std::vector<Optimizer::Slot> slots(const Param& /*parameter*/) const override {
    return {{"acc_grads"}};
  }
  std::vector<Array> common(const Array& done,
                            const std::vector<Array>& /*updates*/) const override {
    const Array step = rem(done, every_);
    return {astype(step + 1, DType::f32), equal(step, every_ - 1)};
  }
  Array update(const Leaf& leaf, const Array& gradient) const override {
    Array& kept = leaf.slots[0];
    const Array mean = kept + (gradient - kept) / leaf.common[0];
    kept = where(leaf.common[1], 0.0, mean);
    return mean;
  }
  std::string key() const override { return "accumulate " + std::to_string(every_); }

 private:
  std::int64_t every_;
};

/// Passes the update at the last of several steps, and zeros at the others.
class Emit final : public Optimizer::Rule {
 public:
  explicit Emit(std::int64_t every) : every_(every) {}
  std::vector<Array> common(const Array& done,
                            const std::vector<Array>& /*updates*/) const override {
    return {equal(rem(done, every_), every_ - 1)};
  }
  Array update(const Leaf& leaf, const Array& update) const override {
    return where(leaf.common[0], update, 0.0);
  }
  std::string key() const override { return "emit " + std::to_string(every_); }

 private:
  std::int64_t every_;
};

Optimizer descend(const Optimizer& direction, double weight_decay, const Mask& mask,
                  const Rate& rate) {
  std::vector<Optimizer> parts = {direction};
  if (weight_decay != 0.0) parts.push_back(add_decayed_weights(weight_decay, mask));
  parts.push_back(scale_by_learning_rate(rate));
  return chain(parts);
}

}  // namespace

Optimizer chain(const std::vector<Optimizer>& optimizers) {
  std::vector<Part> parts;
  for (const Optimizer& optimizer : optimizers) {
    parts.insert(parts.end(), optimizer.parts().begin(), optimizer.parts().end());
  }
  return Optimizer(std::move(parts));
}

Optimizer masked(const Optimizer& inner, const Mask& mask) {
  std::vector<Part> parts = inner.parts();
  for (Part& part : parts) part.masks.push_back(mask);
  return Optimizer(std::move(parts));
}

Optimizer multi_steps(const Optimizer& inner, std::int64_t every, std::source_location where) {
  if (every < 1) {
    throw UserError({.what = "multi_steps: the number of steps is too small",
                     .where = where,
                     .found = std::to_string(every),
                     .wanted = "at least 1",
                     .cure = "write for example multi_steps(adamw(), 4)"});
  }
  if (every == 1) return inner;
  std::vector<Part> parts = {{.rule = std::make_shared<Accumulate>(every)}};
  for (Part part : inner.parts()) {
    part.every *= every;
    parts.push_back(std::move(part));
  }
  parts.push_back({.rule = std::make_shared<Emit>(every)});
  return Optimizer(std::move(parts));
}

Optimizer sgd(const SgdOptions& o) {
  if (o.momentum == 0.0) return scale_by_learning_rate(o.learning_rate);
  return descend(trace(o.momentum, o.nesterov), 0.0, {}, o.learning_rate);
}

Optimizer adam(const AdamOptions& o) { return descend(scale_by_adam(o), 0.0, {}, o.learning_rate); }

Optimizer adamw(const AdamWOptions& o) {
  const AdamOptions moments{.b1 = o.b1,
                            .b2 = o.b2,
                            .epsilon = o.epsilon,
                            .epsilon_root = o.epsilon_root,
                            .nesterov = o.nesterov};
  return descend(scale_by_adam(moments), o.weight_decay, o.mask, o.learning_rate);
}

Optimizer lion(const LionOptions& o) {
  return descend(detail::scale_by_lion(o.b1, o.b2), o.weight_decay, o.mask, o.learning_rate);
}

Optimizer adafactor(const AdafactorOptions& o) {
  std::vector<Optimizer> parts = {detail::scale_by_factored_rms(o)};
  if (o.clipping_threshold != 0.0) parts.push_back(detail::clip_by_block_rms(o.clipping_threshold));
  parts.push_back(scale_by_schedule(o.learning_rate));
  if (o.multiply_by_parameter_scale) parts.push_back(detail::scale_by_param_block_rms(1e-3));
  if (o.momentum != 0.0) parts.push_back(detail::ema(o.momentum));
  if (o.weight_decay_rate != 0.0) {
    parts.push_back(add_decayed_weights(o.weight_decay_rate, o.mask));
  }
  parts.push_back(scale_by_schedule(-1));
  return chain(parts);
}

Optimizer muon(const MuonOptions& o) {
  const AdamWOptions rest = o.adam.value_or(AdamWOptions{.learning_rate = o.learning_rate,
                                                         .epsilon = o.epsilon,
                                                         .weight_decay = 0,
                                                         .nesterov = o.nesterov});
  const Optimizer matrices =
      descend(detail::scale_by_muon(o), o.weight_decay, o.mask, o.learning_rate);
  std::vector<Part> parts = masked(matrices, o.matrices).parts();
  parts.front().needs_matrices = true;
  return chain({Optimizer(std::move(parts)), masked(adamw(rest), !o.matrices)});
}

}  // namespace tessera::optim
