// The flags that every `tessera train MODEL` takes, and helpers to add flags.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <source_location>
#include <string>
#include <vector>

#include <tessera/error.h>
#include <tessera/mesh.h>
#include <tessera/optim.h>

#include "tools/cli/command.h"

namespace tessera::cli {

struct OptimizerFlags {
  std::string name = "adamw";
  std::string schedule = "constant";
  std::int64_t warmup = 0;       // updates
  std::int64_t decay_steps = 0;  // updates; 0: all updates of the run
  double weight_decay = -1;      // negative: the optimiser's default, for every parameter
  bool decays_all = false;
  double clip = 0;  // 0: none
  std::int64_t accumulate = 1;
};

struct TrainFlags {
  std::string mesh = "data=8";
  std::string params = "replicated";
  std::int64_t steps = 50;
  std::int64_t batch = 32;
  std::int64_t seed = 42;
  double learning_rate = 3e-4;
  OptimizerFlags optimizer;
  std::int64_t log_every = 10;
  std::int64_t threads = 0;  // 0: one per core
  std::int64_t grains = 8;
  std::string numerics;  // empty: those of the engine
  std::string dtype = "f32";
  std::string dot_unit = "auto";
  std::string engine = "host";
  std::string json;
  std::string dump;
  std::string profile;
  std::string checkpoint;
  std::int64_t every = 0;  // steps between checkpoints; 0: save at the end only
  std::int64_t keep = 0;   // number of checkpoints; 0: all
  bool resume = false;
  bool no_bind = false;
  bool allow_nan = false;
  bool check_nans = false;
  bool check_indices = false;
  std::string progress = "auto";
  std::string tensorboard;
  bool isolated = false;
  double timeout_s = 60;
  bool allow_overcommit = false;

  /// The mesh that `tessera plan` scales to the cluster if none is given.
  std::string mesh_to_plan() const { return mesh; }
};

/// The dtype that --dtype names.
DType compute_dtype(const TrainFlags& flags);
/// Adds the flags to a command; `flags` must outlive it.
void add_optimizer_flags(Command& command, OptimizerFlags& flags);
void add_train_flags(Command& command, TrainFlags& flags);
void add_threads_flag(Command& command, TrainFlags& flags);
void add_engine_flag(Command& command, TrainFlags& flags);  // --engine, or --backend
/// The optimiser that the flags describe. Throws UserError for flags that contradict each other.
optim::Optimizer optimizer_of(const TrainFlags& flags);
/// The learning rate of the update that the step belongs to.
double learning_rate_at(const TrainFlags& flags, std::int64_t step);
/// The optimiser flags as JSON, for the report.
nlohmann::json optimizer_config(const TrainFlags& flags);
/// For errors that name a file or a flag instead of a line.
constexpr std::source_location kNowhere;
/// The same error with a message that names the flag `name` instead of a function.
UserError told_of(const std::string& name, const UserError& error);
/// The mesh that --mesh describes; throws UserError.
Mesh mesh_of(const std::string& text, const std::string& flag = "--mesh");
/// Sets threads, grains, numerics, engine, overcommit and dot unit of the library.
void apply(const TrainFlags& flags);
/// Runs `body` here or, with --isolated, in one process per device of the mesh.
void run_on_devices(const TrainFlags& flags, const Mesh& mesh, std::int64_t num_groups,
                    const std::function<void()>& body);

/// Adds a flag whose value is one of `choices`; others throw UserError.
void add_choice(Command& command, std::string& value, const std::string& name,
                const std::vector<std::string>& choices, const std::string& text);

/// Adds a flag for the path of a file or folder; an empty one throws UserError.
Option* add_path(Command& command, std::string& value, const std::string& name,
                 const std::string& text, const std::string& example);

/// Parses a number that is the whole text; otherwise returns false.
bool read_number(const std::string& text, std::int64_t& value);
bool read_number(const std::string& text, double& value);

/// A flag for a number above `least` (from `least` on with `has_least`) and below `end`. Others
/// throw UserError.
struct Number {
  std::string name;
  std::string text;  // for --help
  double least = 0;
  double end = 1e30;  // exclusive
  bool has_least = false;
  std::string example = {};  // for errors, if the default is not in the range
};
Option* add_number(Command& command, double& value, const Number& flag);

/// Adds a flag for a number in [0, 1); others throw UserError.
void add_probability(Command& command, double& value, const std::string& name,
                     const std::string& text);

/// A flag for a whole number in [least, most]; other values throw UserError.
struct WholeNumber {
  std::string name;
  std::string text;  // for --help
  std::int64_t least = 1;
  std::int64_t most = 1'000'000;
};
Option* add_whole_number(Command& command, std::int64_t& value, const WholeNumber& flag);
/// Adds a flag for several whole numbers, separated by commas.
void add_whole_numbers(Command& command, std::vector<std::int64_t>& values,
                       const WholeNumber& flag);

}  // namespace tessera::cli
