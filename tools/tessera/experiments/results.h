// The results of experiments: written to a file after each run, shown as a table and as charts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera::cli {

/// One run of training.
struct Experiment {
  std::string mesh;
  std::int64_t batch = 0;
  friend bool operator==(const Experiment&, const Experiment&) = default;
};
/// For example `mesh_4_2_batch_128`.
std::string name_of(const Experiment& experiment);

/// How a run ended.
enum class Outcome : std::uint8_t { done, too_large, failed };
NLOHMANN_JSON_SERIALIZE_ENUM(Outcome, {{Outcome::done, "done"},
                                       {Outcome::too_large, "does not fit"},
                                       {Outcome::failed, "failed"}})

struct Result {
  Experiment experiment;
  Outcome outcome = Outcome::failed;
  std::string why;
  std::int64_t planned_device_bytes = 0;  // of each device
  std::int64_t planned_bytes = 0;         // upper bound of a run: all devices, and the data
  std::int64_t steps = 0;
  std::int64_t steps_per_epoch = 0;
  double epoch_s = 0;  // if the run was not one epoch, computed from the median step
  double images_per_s = 0;
  std::int64_t peak_buffer_bytes = 0;  // arrays and temporaries of the process
  std::int64_t peak_rss_bytes = 0;     // all memory of the process
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Experiment, mesh, batch)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Result, experiment, outcome, why, planned_device_bytes,
                                   planned_bytes, steps, steps_per_epoch, epoch_s, images_per_s,
                                   peak_buffer_bytes, peak_rss_bytes)

/// The results of the runs of one `tessera experiments` command, in a folder.
class Results {
 public:
  /// Makes the folder, or reads the results in it. Throws UserError if these results belong to runs
  /// with other flags, and RuntimeFault if the folder cannot be made.
  Results(std::string folder, std::string flags);
  /// The result of an experiment that is done; nullptr if it is not.
  const Result* find(const Experiment& experiment) const;
  /// Whether the experiment was run and failed.
  bool has_failed(const Experiment& experiment) const;
  /// Adds a result, which replaces an older one of the same experiment, and writes the file.
  void add(const Result& result);
  /// A table with a row for each run, in this order.
  std::string table(const std::vector<Experiment>& order) const;
  /// Draws epoch_run_time and peak_memory, as PNG and as SVG, and returns the paths.
  std::vector<std::string> draw(const std::vector<Experiment>& order,
                                const std::string& title) const;
  std::string path() const { return folder_ + "/results.json"; }

 private:
  void read();
  const Result* any(const Experiment& experiment) const;

  std::string folder_, flags_;
  std::vector<Result> results_;
};

}  // namespace tessera::cli
