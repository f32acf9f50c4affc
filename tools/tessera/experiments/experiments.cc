// `tessera experiments vit`: trains the vision transformer on several meshes and batch sizes. Each
// run is a separate process, so that runs do not affect each other's measurements.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <tessera/engine.h>
#include <tessera/error.h>

#include "tools/cli/size_text.h"
#include "tools/cli/streams.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/experiments/child.h"
#include "tools/tessera/experiments/results.h"
#include "tools/tessera/flags.h"
#include "tools/tessera/machine/machine.h"
#include "tools/tessera/report.h"

namespace tessera::cli {

namespace {

using nlohmann::json;

constexpr std::int64_t kImages = 45'000;  // per epoch without --data: as many as CIFAR-10 has
// What a process holds besides the memory of its step: the program, and as much as three batches in
// f32. With images from files, these are one batch in use and two that are read ahead. With random
// images, they are a batch in f32 and the batch in f64 that it is drawn from.
constexpr std::int64_t kProgramBytes = std::int64_t{32} << 20;
constexpr std::int64_t kImageBytes = 32 * 32 * 3 * std::int64_t{sizeof(float)};

struct ExperimentsFlags {
  std::string out;
  std::vector<std::string> meshes = {"batch=4,model=2", "batch=8,model=1", "none"};
  std::vector<std::int64_t> batches = {128, 1024, 4096};
  std::int64_t memory_limit = 0;   // GiB; 0: what is free
  std::int64_t device_memory = 0;  // GiB; 0: not limited
  std::string launcher;            // that starts the runs; empty: none
  // The flags of training, which are passed to all runs:
  std::vector<std::string> words;
  std::string data;
  bool has_steps = false;
};

/// The flags of training that experiments set themselves or do not need.
constexpr const char* kNotTaken[] = {"--mesh",   "--batch",       "--epochs",    "--json",
                                     "--dump",   "--profile",     "--every",     "--keep",
                                     "--resume", "--timeout",     "--isolated",  "--progress",
                                     "--engine", "--tensorboard", "--checkpoint"};

/// The options that were given, as words of a command line.
std::vector<std::string> words_of(const std::vector<const Option*>& options) {
  std::vector<std::string> words;
  for (const Option* option : options) {
    if (option->count() == 0) continue;
    words.push_back(option->get_name());
    if (!option->takes_value()) continue;
    for (const std::string& value : option->results()) words.push_back(value);
  }
  return words;
}

std::vector<std::string> words_in(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string launched_by(const std::string& launcher) {
  return launcher.empty() ? "" : ", launched by " + launcher;
}

/// The total size of the files of a folder; training reads them whole into memory.
std::int64_t bytes_of_files(const std::string& folder) {
  namespace fs = std::filesystem;
  std::int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;  // the file may have been removed meanwhile
    if (at->is_regular_file(ignored)) bytes += static_cast<std::int64_t>(at->file_size(ignored));
  }
  return bytes;
}

class Experiments {
 public:
  Experiments(ExperimentsFlags flags, std::string model)
      : flags_(std::move(flags)),
        model_(std::move(model)),
        results_(flags_.out, (flags_.words.empty() ? "no flags" : joined(flags_.words)) +
                                 launched_by(flags_.launcher)) {
    for (const std::int64_t batch : flags_.batches) {
      for (const std::string& mesh : flags_.meshes)
        order_.push_back({.mesh = mesh, .batch = batch});
    }
  }

  void run() {
    for (std::size_t i = 0; i < order_.size(); ++i) {
      tell("run " + std::to_string(i + 1) + " of " + std::to_string(order_.size()) + "  mesh " +
           order_[i].mesh + ", batch " + std::to_string(order_[i].batch));
      if (results_.find(order_[i]) != nullptr) {
        tell("  already done");
        continue;
      }
      results_.add(result_of(order_[i]));
    }
    tell("\n" + results_.table(order_) + "\n" + results_.path());
    for (const std::string& path : results_.draw(order_, "tessera train " + model_)) tell(path);
    check_runs();
  }

 private:
  /// Throws UserError if a run has failed. A run that was too large has not failed.
  void check_runs() const {
    std::string failed;
    for (const Experiment& experiment : order_) {
      if (results_.has_failed(experiment))
        failed += (failed.empty() ? "" : ", ") + name_of(experiment);
    }
    if (failed.empty()) return;
    throw UserError({.what = "experiments: runs have failed",
                     .found = failed,
                     .wanted = "runs that end with the exit code 0",
                     .cure = "read their output in " + flags_.out +
                             "/runs; the same command starts them again"});
  }
  static void tell(const std::string& text) {
    print(text + "\n");
    flush_output();
  }

  std::string file_of(const Experiment& experiment, const std::string& end) const {
    return flags_.out + "/runs/" + name_of(experiment) + end;
  }
  std::vector<std::string> command(const char* verb, const Experiment& experiment) const {
    std::vector<std::string> words = {
        verb, model_, "--mesh", experiment.mesh, "--batch", std::to_string(experiment.batch)};
    words.insert(words.end(), flags_.words.begin(), flags_.words.end());
    return words;
  }
  /// The JSON object that a command wrote.
  static json object_of(const std::string& path) {
    std::ifstream file(path);
    return json::parse(file, nullptr, false);
  }

  Result result_of(const Experiment& experiment) const {
    Result result = planned(experiment);
    tell("  plan  " + size_text(result.planned_device_bytes) + " on each device, at most " +
         size_text(result.planned_bytes) + " on this machine");
    if (result.outcome != Outcome::too_large) train(experiment, result);
    if (result.outcome != Outcome::done) {
      tell("  " + result.why);
      return result;
    }
    char text[128];
    std::snprintf(text, sizeof(text), "  epoch %.1f s, %.1f images/s, ", result.epoch_s,
                  result.images_per_s);
    tell(text + size_text(result.peak_rss_bytes) + " of process memory at the peak");
    return result;
  }

  /// Compiles a step without running it.
  Result planned(const Experiment& experiment) const {
    const std::string path = file_of(experiment, ".plan.json");
    std::vector<std::string> words = command("show", experiment);
    words.insert(words.end(), {"--what", "memory", "--json", path});
    const int code = run_again({}, words, file_of(experiment, ".plan.txt"));
    if (code != 0) throw ExitWith(code);  // the child has printed its error
    Result result;
    result.experiment = experiment;
    result.planned_device_bytes = object_of(path).at("memory").at("peak");
    result.planned_bytes = result.planned_device_bytes * mesh_of(experiment.mesh).num_devices() +
                           3 * experiment.batch * kImageBytes + bytes_of_files(flags_.data) +
                           kProgramBytes;
    check_size(result);
    return result;
  }

  void check_size(Result& result) const {
    const std::int64_t limit =
        flags_.memory_limit > 0 ? flags_.memory_limit << 30 : this_machine().free_memory;
    if (flags_.device_memory > 0 && result.planned_device_bytes > flags_.device_memory << 30) {
      result.outcome = Outcome::too_large;
      result.why = "does not fit: a device has " + size_text(flags_.device_memory << 30);
    } else if (result.planned_bytes > limit) {
      result.outcome = Outcome::too_large;
      result.why = "does not fit: " + size_text(limit) +
                   (flags_.memory_limit > 0 ? " is allowed" : " is free");
    }
  }

  void train(const Experiment& experiment, Result& result) const {
    const std::string path = file_of(experiment, ".json");
    std::vector<std::string> words = command("train", experiment);
    words.insert(words.end(), {"--json", path});
    if (!flags_.has_steps && !flags_.data.empty()) words.insert(words.end(), {"--epochs", "1"});
    if (!flags_.has_steps && flags_.data.empty())
      words.insert(words.end(), {"--steps", std::to_string(generated_epoch(experiment))});
    const int code = run_again(words_in(flags_.launcher), words, file_of(experiment, ".txt"));
    if (code == 0) {
      read_report(object_of(path), result);
      return;
    }
    result.outcome = Outcome::failed;
    result.why = code > 128 ? "failed: ended by signal " + std::to_string(code - 128)
                            : "failed: exit code " + std::to_string(code);
  }

  static std::int64_t generated_epoch(const Experiment& experiment) {
    return std::max<std::int64_t>(kImages / experiment.batch, 1);
  }

  static void read_report(const json& report, Result& result) {
    result.outcome = Outcome::done;
    result.steps = std::ssize(report.at("losses"));
    result.steps_per_epoch = report.value("steps_per_epoch", generated_epoch(result.experiment));
    const double step_s =
        (report.at("step_ms_median").get<double>() + report.at("data_ms_median").get<double>()) *
        1e-3;
    const double train_s = report.at("train_s");
    const bool is_whole = result.steps == result.steps_per_epoch;
    result.epoch_s = is_whole ? train_s : step_s * static_cast<double>(result.steps_per_epoch);
    result.images_per_s =
        static_cast<double>(result.experiment.batch * result.steps_per_epoch) / result.epoch_s;
    result.peak_buffer_bytes =
        std::llround(report.at("peak_buffer_mib").get<double>() * 1024.0 * 1024.0);
    result.peak_rss_bytes = report.at("peak_rss_mib").get<std::int64_t>() << 20;
  }

  ExperimentsFlags flags_;
  std::string model_;
  Results results_;
  std::vector<Experiment> order_;
};

void check_launcher() {
  if (!is_launched()) return;
  throw UserError({.what = "experiments: a launcher such as mpirun has started this process",
                   .found = "several processes that would all start the same runs",
                   .wanted = "one process, which starts each run with the launcher",
                   .cure = "write: tessera experiments vit --launcher \"mpirun -n 4\" ..."});
}

/// Runs the experiments; `train_flags` are the flags of training to pass on.
void run_experiments(ExperimentsFlags flags, const std::vector<const Option*>& train_flags) {
  for (const Option* option : train_flags) {
    if (option->get_name() == "--steps") flags.has_steps = option->count() > 0;
    if (option->get_name() == "--data" && option->count() > 0) flags.data = option->results()[0];
  }
  check_launcher();
  flags.words = words_of(train_flags);
  flags.meshes = words_in(joined(flags.meshes));      // of several words, or of one in quotes
  if (flags.meshes.empty()) mesh_of("", "--meshes");  // throws
  for (const std::string& mesh : flags.meshes) mesh_of(mesh, "--meshes");
  Experiments(std::move(flags), "vit").run();
}

}  // namespace

void add_experiments(Command& app) {
  Command* experiments =
      app.add_subcommand("experiments", "train on several meshes and batch sizes, and compare");
  experiments->require_subcommand(1);
  Command* vit = experiments->add_subcommand(
      "vit", "epoch run time and peak memory of tessera train vit; also takes its flags");
  const std::shared_ptr<void> train_flags = add_vit_flags(*vit);
  for (const char* name : kNotTaken) vit->remove_option(name);
  std::vector<const Option*> taken;
  for (const Option* option : vit->get_options()) {
    if (option->get_name() != "--help") taken.push_back(option);
  }
  auto flags = std::make_shared<ExperimentsFlags>();
  vit->add_option("--out", flags->out, "a folder for results.json and the charts")->required();
  vit->add_option("--meshes", flags->meshes, "meshes, separated by spaces")->capture_default_str();
  add_whole_numbers(*vit, flags->batches,
                    {.name = "--batches", .text = "images per step, separated by commas"});
  add_whole_number(
      *vit, flags->memory_limit,
      {.name = "--memory-limit",
       .text = "GiB of memory of this machine that a run may use; default: what is free"});
  add_whole_number(
      *vit, flags->device_memory,
      {.name = "--device-memory", .text = "GiB of memory per device; default: no limit"});
  vit->add_option("--launcher", flags->launcher,
                  "a command that starts each run as several ranks, for example \"mpirun -n 4\"");
  vit->callback([flags, train_flags, taken] { run_experiments(*flags, taken); });
}

}  // namespace tessera::cli
