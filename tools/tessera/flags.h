// Flags that every `tessera train MODEL` takes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tessera::cli {

struct TrainFlags {
  std::string mesh = "data=8";
  std::string params = "replicated";
  std::int64_t steps = 50;
  std::int64_t batch = 32;
  std::int64_t seed = 42;
  double learning_rate = 3e-4;
  std::int64_t log_every = 10;
  int threads = 0;  // 0: one per core
  std::int64_t grains = 8;
  std::string numerics = "exact";
  std::string dtype = "f32";
  std::string engine = "host";
  std::string json;
  std::string dump;
  std::string progress = "auto";
};

/// Adds the flags to a command; `flags` must outlive it.
void add_train_flags(CLI::App& command, TrainFlags& flags);
/// Sets up threads, grains and engine.
void apply(const TrainFlags& flags);

/// A whole number of at least `least`; CLI11's own text for mistakes has no cure.
CLI::Validator at_least(std::int64_t least);
CLI::Validator positive_number();

}  // namespace tessera::cli
