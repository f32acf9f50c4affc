// Makes the optimiser that the flags of `tessera train MODEL` describe.
#include <algorithm>

#include "flags.h"

namespace tessera::cli {

namespace {

/// The part of the learning rate that is left at the end of an exponential decay.
constexpr double kFinalFraction = 0.01;

/// The number of updates, with the warm-up, until the learning rate has decayed.
std::int64_t decay_steps(const TrainFlags& flags) {
  const OptimizerFlags& o = flags.optimizer;
  return o.decay_steps > 0 ? o.decay_steps : std::max<std::int64_t>(1, flags.steps / o.accumulate);
}

void check(const TrainFlags& flags) {
  const OptimizerFlags& o = flags.optimizer;
  if (o.schedule != "constant" && o.warmup >= decay_steps(flags)) {
    throw UserError({.what = "--warmup: the warm-up leaves no update for the decay",
                     .found = "--warmup " + std::to_string(o.warmup) +
                              ", and the decay ends after " + std::to_string(decay_steps(flags)) +
                              " updates",
                     .wanted = "fewer than --decay-steps, by default all updates of the run",
                     .cure = "write for example --warmup " +
                             std::to_string(decay_steps(flags) / 10) + ", or use more --steps"});
  }
  if (o.schedule == "constant" && o.decay_steps > 0) {
    throw UserError({.what = "--decay-steps: the learning rate does not decay",
                     .found = "--lr-schedule constant",
                     .wanted = "a schedule that decays",
                     .cure = "add --lr-schedule cosine"});
  }
  constexpr std::string_view kWithoutDecay[] = {"adam", "amsgrad", "rmsprop",  "adagrad",
                                                "yogi", "radam",   "adabelief"};
  const bool has_decay = std::find(std::begin(kWithoutDecay), std::end(kWithoutDecay), o.name) ==
                         std::end(kWithoutDecay);
  if (!has_decay && o.weight_decay >= 0) {
    throw UserError({.what = "--weight-decay: " + o.name + " has no weight decay",
                     .found = "--optimizer " + o.name,
                     .wanted = "an optimiser with weight decay",
                     .cure = "add --optimizer adamw"});
  }
}

optim::Rate rate_of(const TrainFlags& flags) {
  const OptimizerFlags& o = flags.optimizer;
  const double peak = flags.learning_rate;
  const std::int64_t left = decay_steps(flags) - o.warmup;
  optim::Rate rate = peak;
  if (o.schedule == "linear") rate = optim::linear_schedule(peak, 0, left);
  if (o.schedule == "cosine") rate = optim::cosine_decay_schedule(peak, left);
  if (o.schedule == "exponential") rate = optim::exponential_decay(peak, left, kFinalFraction);
  if (o.warmup == 0) return rate;
  return optim::join_schedules({optim::linear_schedule(0, peak, o.warmup), rate}, {o.warmup});
}

bool is_kernel(const Param& parameter) {
  const std::string& path = parameter.path();
  const std::string name = path.substr(path.rfind('/') + 1);
  return name != "bias" && name != "scale";
}

optim::Mask mask_of(const OptimizerFlags& flags) {
  const bool is_told = flags.weight_decay >= 0;
  return is_told && !flags.decays_all ? optim::Mask::when(is_kernel) : optim::Mask();
}

/// The value of --weight-decay, or `usual` if it is not given.
double decay_or(const OptimizerFlags& flags, double usual) {
  return flags.weight_decay >= 0 ? flags.weight_decay : usual;
}

optim::Optimizer sgd_of(const OptimizerFlags& flags, const optim::Rate& rate) {
  const optim::Optimizer sgd =
      optim::sgd({.learning_rate = rate, .momentum = flags.name == "momentum" ? 0.9 : 0.0});
  const double decay = decay_or(flags, 0);
  if (decay == 0) return sgd;
  return optim::chain({optim::add_decayed_weights(decay, mask_of(flags)), sgd});
}

optim::Optimizer muon_of(const OptimizerFlags& flags, const optim::Rate& rate) {
  const double decay = decay_or(flags, 0);
  const optim::Mask mask = mask_of(flags);
  const optim::AdamWOptions rest{
      .learning_rate = rate, .weight_decay = decay, .mask = mask, .nesterov = true};
  return optim::muon({.learning_rate = rate, .weight_decay = decay, .mask = mask, .adam = rest});
}

optim::Optimizer named(const OptimizerFlags& flags, const optim::Rate& rate) {
  const optim::Mask mask = mask_of(flags);
  if (flags.name == "adam") return optim::adam({.learning_rate = rate});
  if (flags.name == "adamw") {
    const double decay = decay_or(flags, optim::AdamWOptions().weight_decay);
    return optim::adamw({.learning_rate = rate, .weight_decay = decay, .mask = mask});
  }
  if (flags.name == "adafactor") {
    return optim::adafactor(
        {.learning_rate = rate, .weight_decay_rate = decay_or(flags, 0), .mask = mask});
  }
  if (flags.name == "lion") {
    const double decay = decay_or(flags, optim::LionOptions().weight_decay);
    return optim::lion({.learning_rate = rate, .weight_decay = decay, .mask = mask});
  }
  if (flags.name == "lamb") {
    return optim::lamb({.learning_rate = rate, .weight_decay = decay_or(flags, 0), .mask = mask});
  }
  if (flags.name == "adadelta") {
    return optim::adadelta(
        {.learning_rate = rate, .weight_decay = decay_or(flags, 0), .mask = mask});
  }
  if (flags.name == "lars") {
    const double decay = decay_or(flags, 0);
    return optim::lars({.learning_rate = rate, .weight_decay = decay, .weight_decay_mask = mask});
  }
  if (flags.name == "adamax") {
    return optim::adamax({.learning_rate = rate, .weight_decay = decay_or(flags, 0), .mask = mask});
  }
  if (flags.name == "radam") return optim::radam({.learning_rate = rate});
  if (flags.name == "adabelief") return optim::adabelief({.learning_rate = rate});
  if (flags.name == "amsgrad") return optim::amsgrad({.learning_rate = rate});
  if (flags.name == "rmsprop") return optim::rmsprop({.learning_rate = rate});
  if (flags.name == "adagrad") return optim::adagrad({.learning_rate = rate});
  if (flags.name == "yogi") return optim::yogi({.learning_rate = rate});
  return flags.name == "muon" ? muon_of(flags, rate) : sgd_of(flags, rate);
}

}  // namespace

void add_optimizer_flags(Command& command, OptimizerFlags& flags) {
  add_choice(command, flags.name, "--optimizer",
             {"sgd", "momentum", "adam", "adamw", "adafactor", "lion", "muon", "lamb", "amsgrad",
              "rmsprop", "adagrad", "adadelta", "yogi", "lars", "adamax", "radam", "adabelief"},
             "how gradients update the parameters");
  add_choice(command, flags.schedule, "--lr-schedule",
             {"constant", "cosine", "linear", "exponential"},
             "how the learning rate changes after the warm-up: cosine and linear end at 0, "
             "exponential at a hundredth of --lr");
  add_whole_number(command, flags.warmup,
                   {.name = "--warmup",
                    .text = "updates during which the learning rate grows from 0",
                    .least = 0});
  add_whole_number(command, flags.decay_steps,
                   {.name = "--decay-steps",
                    .text = "updates, including the warm-up, after which the decay has ended; "
                            "default: all updates of the run",
                    .most = 1'000'000'000});
  Option* decay = add_number(command, flags.weight_decay,
                             {.name = "--weight-decay",
                              .text = "weight decay of all parameters except biases and scales; "
                                      "default: the optimiser's own value, for all parameters",
                              .has_least = true,
                              .example = "0.01"});
  command.add_flag("--decay-all", flags.decays_all, "also decay biases and scales")
      ->disable_flag_override()
      ->needs(decay);
  add_number(command, flags.clip,
             {.name = "--clip",
              .text = "clip gradients to this global norm; default: no clipping",
              .example = "1"});
  add_whole_number(
      command, flags.accumulate,
      {.name = "--accumulate", .text = "steps whose gradients are averaged for one update"});
}

optim::Optimizer optimizer_of(const TrainFlags& flags) {
  check(flags);
  optim::Optimizer optimizer = named(flags.optimizer, rate_of(flags));
  if (flags.optimizer.clip > 0) {
    optimizer = optim::chain({optim::clip_by_global_norm(flags.optimizer.clip), optimizer});
  }
  return optim::multi_steps(optimizer, flags.optimizer.accumulate);
}

double learning_rate_at(const TrainFlags& flags, std::int64_t step) {
  const optim::Rate rate = rate_of(flags);
  if (rate.constant()) return *rate.constant();
  const std::int64_t updates = step / flags.optimizer.accumulate;
  return rate(full({}, static_cast<float>(updates))).item<double>();
}

nlohmann::json optimizer_config(const TrainFlags& flags) {
  const OptimizerFlags& o = flags.optimizer;
  nlohmann::json config = {{"name", o.name},
                           {"lr", flags.learning_rate},
                           {"lr_schedule", o.schedule},
                           {"accumulate", o.accumulate}};
  if (o.warmup > 0) config["warmup"] = o.warmup;
  if (o.schedule != "constant") config["decay_steps"] = decay_steps(flags);
  if (o.weight_decay >= 0) config["weight_decay"] = o.weight_decay;
  if (o.decays_all) config["decay_all"] = true;
  if (o.clip > 0) config["clip"] = o.clip;
  return config;
}

}  // namespace tessera::cli
