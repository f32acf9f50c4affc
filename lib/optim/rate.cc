#include <algorithm>
#include <cmath>
#include <numbers>

#include <tessera/error.h>

#include "optim/parts.h"

namespace tessera::optim {

namespace {

using detail::RateRule;
using detail::text;

class OwnRule final : public RateRule {
 public:
  explicit OwnRule(Rate::Schedule schedule) : schedule_(std::move(schedule)) {}
  Array at(const Array& done) const override { return schedule_(done); }
  std::string key() const override { return schedule_.key(); }

 private:
  Rate::Schedule schedule_;
};

class Polynomial final : public RateRule {
 public:
  Polynomial(double init_value, double end_value, double power, double steps, double begin)
      : init_(init_value), end_(end_value), power_(power), steps_(steps), begin_(begin) {}
  Array at(const Array& done) const override {
    Array left = 1.0 - clamp(0.0, done - begin_, steps_) / steps_;
    if (power_ != 1.0) left = pow(left, power_);
    return (init_ - end_) * left + end_;
  }
  std::string key() const override {
    return "polynomial " + text(init_) + " " + text(end_) + " " + text(power_) + " " +
           text(steps_) + " " + text(begin_);
  }

 private:
  double init_, end_, power_, steps_, begin_;
};

class Cosine final : public RateRule {
 public:
  Cosine(double init_value, double steps, double alpha, double exponent)
      : init_(init_value), steps_(steps), alpha_(alpha), exponent_(exponent) {}
  Array at(const Array& done) const override {
    Array part = 0.5 * (1.0 + cos(std::numbers::pi * minimum(done, steps_) / steps_));
    if (exponent_ != 1.0) part = pow(part, exponent_);
    return init_ * ((1.0 - alpha_) * part + alpha_);
  }
  std::string key() const override {
    return "cosine " + text(init_) + " " + text(steps_) + " " + text(alpha_) + " " +
           text(exponent_);
  }

 private:
  double init_, steps_, alpha_, exponent_;
};

struct ExponentialOptions {
  double init_value;
  double steps;
  double decay_rate;
  double begin;
  bool staircase;
  std::optional<double> end_value;
};

class Exponential final : public RateRule {
 public:
  explicit Exponential(const ExponentialOptions& options) : o_(options) {}
  Array at(const Array& done) const override {
    const Array since = done - o_.begin;
    Array power = since / o_.steps;
    if (o_.staircase) power = floor(power);
    Array value = where(since <= 0.0, o_.init_value, o_.init_value * pow(o_.decay_rate, power));
    if (!o_.end_value) return value;
    return o_.decay_rate < 1.0 ? maximum(value, *o_.end_value) : minimum(value, *o_.end_value);
  }
  std::string key() const override {
    return "exponential " + text(o_.init_value) + " " + text(o_.steps) + " " + text(o_.decay_rate) +
           " " + text(o_.begin) + (o_.staircase ? " in stairs" : "") +
           (o_.end_value ? " to " + text(*o_.end_value) : "");
  }

 private:
  ExponentialOptions o_;
};

class Piecewise final : public RateRule {
 public:
  Piecewise(double init_value, const std::map<std::int64_t, double>& scales)
      : init_(init_value), scales_(scales) {}
  Array at(const Array& done) const override {
    Array value = full({}, init_);
    for (const auto& [boundary, scale] : scales_) {
      value = where(done < static_cast<double>(boundary), value, value * scale);
    }
    return value;
  }
  std::string key() const override {
    std::string key = "piecewise " + text(init_);
    for (const auto& [boundary, scale] : scales_) {
      key += " " + std::to_string(boundary) + ":" + text(scale);
    }
    return key;
  }

 private:
  double init_;
  std::map<std::int64_t, double> scales_;
};

class Joined final : public RateRule {
 public:
  Joined(std::vector<Rate> schedules, std::vector<std::int64_t> boundaries)
      : schedules_(std::move(schedules)), boundaries_(std::move(boundaries)) {}
  Array at(const Array& done) const override {
    Array value = schedules_[0](done);
    for (std::size_t i = 0; i < boundaries_.size(); ++i) {
      const auto boundary = static_cast<double>(boundaries_[i]);
      value = where(done < boundary, value, schedules_[i + 1](done - boundary));
    }
    return value;
  }
  std::string key() const override {
    std::string key = "joined (" + schedules_[0].key() + ")";
    for (std::size_t i = 0; i < boundaries_.size(); ++i) {
      key += " " + std::to_string(boundaries_[i]) + " (" + schedules_[i + 1].key() + ")";
    }
    return key;
  }

 private:
  std::vector<Rate> schedules_;
  std::vector<std::int64_t> boundaries_;
};

struct Steps {
  const char* schedule;
  const char* name;
  std::int64_t count;
  std::int64_t least;
};

void check(const Steps& steps, const std::source_location& where) {
  if (steps.count >= steps.least) return;
  throw UserError({.what = std::string(steps.schedule) + ": the number of steps is too small",
                   .where = where,
                   .found = std::string(steps.name) + " " + std::to_string(steps.count),
                   .wanted = "at least " + std::to_string(steps.least),
                   .cure = "count updates from the beginning of the schedule"});
}

struct Transition {
  std::int64_t steps;
  std::int64_t begin;
};

Rate polynomial(const char* name, double init_value, double end_value, double power,
                const Transition& transition, const std::source_location& where) {
  check({name, "transition_steps", transition.steps, 0}, where);
  check({name, "transition_begin", transition.begin, 0}, where);
  if (transition.steps == 0) return init_value;
  return Rate(std::make_shared<Polynomial>(init_value, end_value, power,
                                           static_cast<double>(transition.steps),
                                           static_cast<double>(transition.begin)));
}

/// Half a cosine wave from one value to another.
Rate half_wave(double from, double to, std::int64_t steps) {
  if (steps == 0 || from == 0.0) return from;
  return Rate(std::make_shared<Cosine>(from, static_cast<double>(steps), to / from, 1.0));
}

/// Checks the arguments of a schedule of one cycle.
struct OneCycle {
  const char* name;
  std::int64_t steps;
  std::source_location where;

  /// The step at a part of all steps.
  std::int64_t step(const char* argument, double part, double least) const {
    check({name, "transition_steps", steps, 1}, where);
    if (part >= least && part <= 1) {
      return static_cast<std::int64_t>(part * static_cast<double>(steps));
    }
    fail(argument, part, "a part of the steps, from " + text(least) + " to 1",
         "choose 0 <= pct_start <= pct_final <= 1, such as 0.3 and 0.85");
  }
  double divided(double value, const char* argument, double divisor) const {
    if (divisor > 0) return value / divisor;
    fail(argument, divisor, "a number above 0", "choose 1 to leave the rate as it is");
  }
  [[noreturn]] void fail(const char* argument, double found, const std::string& wanted,
                         const std::string& cure) const {
    throw UserError({.what = std::string(name) + ": " + argument + " is not valid",
                     .where = where,
                     .found = std::string(argument) + " = " + text(found),
                     .wanted = wanted,
                     .cure = cure});
  }
};

}  // namespace

TESSERA_DEFINE_COPYABLE(Rate);
Rate::Rate(Schedule schedule) : rule_(std::make_shared<OwnRule>(std::move(schedule))) {}
Rate::Rate(std::shared_ptr<const RateRule> rule) : rule_(std::move(rule)) {}

std::optional<double> Rate::constant() const { return rule_ ? std::optional<double>() : constant_; }

Array Rate::operator()(const Array& done) const {
  if (!rule_) return full({}, constant_);
  return rule_->at(done.dtype() == DType::f32 ? done : astype(done, DType::f32));
}

std::string Rate::key() const { return rule_ ? rule_->key() : text(constant_); }

Rate linear_schedule(double init_value, double end_value, std::int64_t transition_steps,
                     std::int64_t transition_begin, std::source_location where) {
  return polynomial("linear_schedule", init_value, end_value, 1,
                    {transition_steps, transition_begin}, where);
}

Rate polynomial_schedule(double init_value, double end_value, double power,
                         std::int64_t transition_steps, std::int64_t transition_begin,
                         std::source_location where) {
  return polynomial("polynomial_schedule", init_value, end_value, power,
                    {transition_steps, transition_begin}, where);
}

Rate linear_onecycle_schedule(std::int64_t transition_steps, double peak_value, double pct_start,
                              double pct_final, double div_factor, double final_div_factor,
                              std::source_location where) {
  const OneCycle cycle{"linear_onecycle_schedule", transition_steps, where};
  const std::int64_t top = cycle.step("pct_start", pct_start, 0);
  const std::int64_t back = cycle.step("pct_final", pct_final, pct_start);
  const double low = cycle.divided(peak_value, "div_factor", div_factor);
  const double last = cycle.divided(low, "final_div_factor", final_div_factor);
  return join_schedules(
      {linear_schedule(low, peak_value, top), linear_schedule(peak_value, low, back - top),
       linear_schedule(low, last, transition_steps - back)},
      {top, back});
}

Rate cosine_onecycle_schedule(std::int64_t transition_steps, double peak_value, double pct_start,
                              double div_factor, double final_div_factor,
                              std::source_location where) {
  const OneCycle cycle{"cosine_onecycle_schedule", transition_steps, where};
  const std::int64_t top = cycle.step("pct_start", pct_start, 0);
  const double low = cycle.divided(peak_value, "div_factor", div_factor);
  const double last = cycle.divided(low, "final_div_factor", final_div_factor);
  return join_schedules(
      {half_wave(low, peak_value, top), half_wave(peak_value, last, transition_steps - top)},
      {top});
}

Rate cosine_decay_schedule(double init_value, std::int64_t decay_steps, double alpha,
                           double exponent, std::source_location where) {
  check({"cosine_decay_schedule", "decay_steps", decay_steps, 1}, where);
  return Rate(
      std::make_shared<Cosine>(init_value, static_cast<double>(decay_steps), alpha, exponent));
}

Rate warmup_cosine_decay_schedule(const WarmupCosineOptions& o, std::source_location where) {
  constexpr const char* kName = "warmup_cosine_decay_schedule";
  check({kName, "warmup_steps", o.warmup_steps, 0}, where);
  check({kName, "decay_steps", o.decay_steps, o.warmup_steps + 1}, where);
  const double alpha = o.peak_value == 0.0 ? 0.0 : o.end_value / o.peak_value;
  return join_schedules(
      {linear_schedule(o.init_value, o.peak_value, o.warmup_steps),
       cosine_decay_schedule(o.peak_value, o.decay_steps - o.warmup_steps, alpha, o.exponent)},
      {o.warmup_steps}, where);
}

Rate exponential_decay(double init_value, std::int64_t transition_steps, double decay_rate,
                       std::int64_t transition_begin, bool staircase,
                       std::optional<double> end_value, std::source_location where) {
  constexpr const char* kName = "exponential_decay";
  check({kName, "transition_steps", transition_steps, 0}, where);
  check({kName, "transition_begin", transition_begin, 0}, where);
  if (transition_steps == 0 || decay_rate == 0.0) return init_value;
  return Rate(std::make_shared<Exponential>(
      ExponentialOptions{.init_value = init_value,
                         .steps = static_cast<double>(transition_steps),
                         .decay_rate = decay_rate,
                         .begin = static_cast<double>(transition_begin),
                         .staircase = staircase,
                         .end_value = end_value}));
}

Rate piecewise_constant_schedule(double init_value, const std::map<std::int64_t, double>& scales,
                                 std::source_location where) {
  for (const auto& [boundary, scale] : scales) {
    check({"piecewise_constant_schedule", "boundary", boundary, 0}, where);
  }
  return Rate(std::make_shared<Piecewise>(init_value, scales));
}

Rate join_schedules(const std::vector<Rate>& schedules, const std::vector<std::int64_t>& boundaries,
                    std::source_location where) {
  if (schedules.size() != boundaries.size() + 1) {
    throw UserError({.what = "join_schedules: the numbers of schedules and boundaries do not match",
                     .where = where,
                     .found = std::to_string(schedules.size()) + " schedules and " +
                              std::to_string(boundaries.size()) + " boundaries",
                     .wanted = "one boundary between every two successive schedules",
                     .cure = "write for example join_schedules({warmup, decay}, {100})"});
  }
  for (const std::int64_t boundary : boundaries) {
    check({"join_schedules", "boundary", boundary, 0}, where);
  }
  return Rate(std::make_shared<Joined>(schedules, boundaries));
}

}  // namespace tessera::optim
