#include "flags.h"

#include <thread>

#include <tessera/engine.h>

namespace tessera::cli {

CLI::Validator at_least(std::int64_t least) {
  auto check = [least](const std::string& text) -> std::string {
    std::int64_t value = 0;
    const bool is_number = CLI::detail::lexical_cast(text, value);
    if (is_number && value >= least) return {};
    return "found '" + text + "', wanted a whole number of at least " + std::to_string(least);
  };
  return CLI::Validator(check, ">=" + std::to_string(least));
}

CLI::Validator positive_number() {
  auto check = [](const std::string& text) -> std::string {
    double value = 0;
    const bool is_number = CLI::detail::lexical_cast(text, value);
    if (is_number && value > 0 && value < 1e30) return {};
    return "found '" + text + "', wanted a number above 0";
  };
  return CLI::Validator(check, "NUMBER>0");
}

namespace {

CLI::Validator one_of(std::vector<std::string> choices) {
  auto check = [choices](const std::string& text) -> std::string {
    std::string list;
    for (const std::string& choice : choices) {
      if (choice == text) return {};
      list += (list.empty() ? "" : ", ") + choice;
    }
    return "found '" + text + "', wanted one of: " + list;
  };
  return CLI::Validator(check, "NAME");
}

}  // namespace

void add_train_flags(CLI::App& command, TrainFlags& flags) {
  command.add_option("--mesh", flags.mesh, "mesh axes in order, data=4,model=2; or none")
      ->capture_default_str();
  command.add_option("--params", flags.params, "where parameters and optimiser state live")
      ->check(one_of({"replicated", "fsdp"}))
      ->capture_default_str();
  command.add_option("--steps", flags.steps, "training steps")
      ->check(at_least(1))
      ->capture_default_str();
  command.add_option("--batch", flags.batch, "sequences or images per step")
      ->check(at_least(1))
      ->capture_default_str();
  command.add_option("--seed", flags.seed, "of the parameters")
      ->check(at_least(0))
      ->capture_default_str();
  command.add_option("--lr", flags.learning_rate, "learning rate")
      ->check(positive_number())
      ->capture_default_str();
  command.add_option("--log-every", flags.log_every, "steps between loss lines")
      ->check(at_least(1))
      ->capture_default_str();
  command.add_option("--threads", flags.threads, "worker threads; default: one per core")
      ->check(at_least(1));
  command.add_option("--grains", flags.grains, "leaves of a sum; part of the numbers")
      ->check(at_least(1))
      ->capture_default_str();
  command.add_option("--numerics", flags.numerics, "exact: the same bits on any mesh")
      ->check(one_of({"exact"}))
      ->capture_default_str();
  command.add_option("--dtype", flags.dtype, "of parameters and activations")
      ->check(one_of({"f32"}))
      ->capture_default_str();
  command.add_option("--engine", flags.engine, "host, or the slow and simple reference")
      ->check(one_of({"host", "reference"}))
      ->capture_default_str();
  command.add_option("--json", flags.json,
                     "write one JSON object at the end; - is standard output");
  command.add_option("--dump", flags.dump, "write initial parameters and first gradients here");
  command.add_option("--progress", flags.progress, "a progress bar on a terminal")
      ->check(one_of({"auto", "off"}))
      ->capture_default_str();
}

void apply(const TrainFlags& flags) {
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  set_num_threads(flags.threads > 0 ? flags.threads : static_cast<int>(cores));
  set_grains(flags.grains);
  set_engine(flags.engine);
}

}  // namespace tessera::cli
