// `tessera train pipeline`: the transformer of examples/pipeline on micro-batches, its state split
// over the axis fsdp, its layers over the groups of the axis stage.

#include <fstream>
#include <sstream>

#include <tessera/data.h>

#include "commands.h"
#include "job.h"
#include "pipeline/model.h"

namespace tessera::cli {

namespace {

constexpr const char* kGroupAxis = "stage";

struct Flags : TrainFlags {
  Flags() {
    mesh = "fsdp=4";
    params = "fsdp";
    steps = 6;
    batch = 8;
    seed = 0;
    learning_rate = 1e-3;
  }
  pipeline::Config model;
  std::string inputs = "normal";
  std::string timeline;     // file
  std::string schedule;     // empty: Interleaved1F1B on groups, else a loop of one program
  std::int64_t stages = 0;  // 0: one per group
};

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (file && !file.bad()) return text.str();
  throw UserError({.what = "--schedule: the file cannot be read",
                   .found = path,
                   .wanted = "a file of tasks, as tessera schedule NAME --format csv writes it",
                   .cure = "check the path, or name a schedule"});
}

/// `groups`: how many groups of devices there are.
Schedule schedule_of(const Flags& flags, std::int64_t groups) {
  if (flags.schedule.ends_with(".csv")) {
    return read_schedule(text_of_file(flags.schedule), flags.schedule, std::source_location());
  }
  const std::int64_t stages = flags.model.stages;
  if (flags.schedule == "auto") return AutoSchedule{.num_stages = stages, .mpmd_dim = groups};
  const std::int64_t count = flags.model.microbatches;
  return FixedSchedule{
      .num_stages = stages,
      .mpmd_dim = groups,
      .num_microbatches = count,
      .list = schedule_tasks(flags.schedule, {.num_stages = stages, .mpmd_dim = groups}, count,
                             std::source_location())};
}

using Batch = std::tuple<Array, Array>;  // inputs, targets

class PipelineJob final : public Job<pipeline::Transformer, Batch> {
 public:
  PipelineJob(Flags flags, const Mesh& mesh) : flags_(std::move(flags)) {
    flags_.model.dtype = compute_dtype(flags_);
    check_sizes();
    if (mesh.has_axis(kGroupAxis)) {
      groups_.emplace(mesh, kGroupAxis);
      if (flags_.schedule.empty()) flags_.schedule = "Interleaved1F1B";
    }
    check_timeline();
    if (flags_.schedule.empty()) return;
    const std::int64_t groups = groups_ ? groups_->mpmd_dim() : 1;
    set_stages(groups);
    schedule_.emplace(schedule_of(flags_, groups));
  }
  std::optional<MpmdMesh> mpmd_mesh() const override { return groups_; }

  pipeline::Transformer make_model(const Key& key) const override {
    return {nn::Scope(key), flags_.model};
  }
  std::tuple<Array, pipeline::Transformer> loss_and_grads(const pipeline::Transformer& params,
                                                          const Batch& batch,
                                                          const Array& /*step*/) const override {
    const auto& [xs, targets] = batch;
    const std::int64_t count = flags_.model.microbatches;
    if (schedule_) return pipeline::accumulate(params, xs, targets, count, *schedule_);
    return pipeline::accumulate(params, xs, targets, count);
  }
  void load(Report& /*report*/) override {
    const Array x = ones(shape());
    data_ = {x, x};
    // For a run of one step, as --resume may leave.
    if (has_timeline()) start_timeline();
    if (flags_.inputs == "ones") return;
    data::RandomState random(0);
    std::get<0>(data_) = random.standard_normal(shape());
    std::get<1>(data_) = random.standard_normal(shape());
  }
  /// The last step is recorded.
  void after_step(std::int64_t step, const pipeline::Transformer& /*params*/,
                  Report& /*report*/) override {
    if (has_timeline() && step == flags_.steps - 2) start_timeline();
  }
  void finish(const pipeline::Transformer& /*params*/, float /*last_loss*/, Report& /*report*/,
              nlohmann::json& extra) const override {
    // A run may be resumed on other stages.
    extra["config"]["stages"] = flags_.model.stages;
    extra["config"]["schedule"] = flags_.schedule;
    if (has_timeline()) write_timeline(extra);
  }
  Batch batch(std::int64_t /*step*/) const override { return data_; }
  Batch blank_batch() const override { return {zeros(shape()), zeros(shape())}; }
  StepWork work() const override {
    return {.count = flags_.batch * flags_.model.seq, .unit = "positions"};
  }
  nlohmann::json config() const override {
    const pipeline::Config& m = flags_.model;
    return {{"seq", m.seq},       {"d_model", m.d_model},           {"heads", m.heads},
            {"layers", m.layers}, {"microbatches", m.microbatches}, {"inputs", flags_.inputs}};
  }

 private:
  void check_sizes() const {
    const pipeline::Config& model = flags_.model;
    if (model.d_model % (8 * model.heads) != 0) {
      throw UserError(
          {.what = "--heads: the heads do not divide an eighth of the width of the model",
           .found = "--heads " + std::to_string(model.heads) + " and --d-model " +
                    std::to_string(model.d_model),
           .wanted = "a --d-model that is a multiple of 8 times --heads",
           .cure = "write for example --heads 8 --d-model 256"});
    }
    if (flags_.batch % model.microbatches == 0) return;
    throw UserError({.what = "--microbatches: they do not divide the batch",
                     .found = "--microbatches " + std::to_string(model.microbatches) +
                              " and --batch " + std::to_string(flags_.batch),
                     .wanted = "a --batch that is a multiple of --microbatches",
                     .cure = "write for example --batch 8 --microbatches 4"});
  }

  void set_stages(std::int64_t groups) {
    pipeline::Config& model = flags_.model;
    model.stages = flags_.stages == 0 ? groups : flags_.stages;
    if (model.stages <= model.layers) return;
    throw UserError({.what = "--stages: there are more stages than layers",
                     .found = "--stages " + std::to_string(model.stages) + " and --layers " +
                              std::to_string(model.layers),
                     .wanted = "at least one layer per stage",
                     .cure = "write for example --layers " + std::to_string(model.stages)});
  }

  bool has_timeline() const { return !flags_.timeline.empty(); }

  void check_timeline() const {
    const bool is_known = flags_.timeline.ends_with(".svg") || flags_.timeline.ends_with(".json");
    if (!has_timeline() || (groups_ && is_known)) return;
    throw UserError({.what = "--timeline: the last step cannot be written there",
                     .found = "--timeline " + flags_.timeline + " and --mesh " + flags_.mesh,
                     .wanted = "FILE.svg or FILE.json, and groups of devices",
                     .cure = "write for example --mesh stage=4,fsdp=1 --timeline step.svg"});
  }

  /// As a picture or as a trace, in milliseconds, with the idle share beside that of a simulation.
  void write_timeline(nlohmann::json& extra) const {
    const ScheduleTasks tasks = schedule_->tasks(flags_.model.microbatches);
    std::vector<TaskTime> times = stop_timeline();
    for (TaskTime& time : times) {
      time.start *= 1e3;
      time.end *= 1e3;
    }
    const Simulation run = measured(tasks, times);
    const Simulation planned = simulate(tasks, measured_costs(times, schedule_->num_stages()));
    extra["bubble"] = {{"measured", run.bubble}, {"simulated", planned.bubble}};
    if (process_index() != 0) return;
    std::ofstream file(flags_.timeline);
    const std::string title = flags_.schedule + ", one step in ms";
    file << (flags_.timeline.ends_with(".svg") ? to_svg(run, title) : to_chrome_trace(run));
    if (file.flush()) return;
    throw RuntimeFault("--timeline: " + flags_.timeline + " cannot be written");
  }

  Shape shape() const { return {flags_.batch, flags_.model.seq, flags_.model.d_model}; }

  Flags flags_;
  std::optional<MpmdMesh> groups_;
  std::optional<Schedule> schedule_;
  Batch data_;
};

void add_flags(CLI::App& command, Flags& flags) {
  auto size = [&](const char* name, std::int64_t& value, const char* text) {
    add_whole_number(command, value, {.name = name, .text = text});
  };
  size("--seq", flags.model.seq, "length of a sequence");
  size("--d-model", flags.model.d_model, "width of the model");
  size("--heads", flags.model.heads, "attention heads; they divide an eighth of --d-model");
  size("--layers", flags.model.layers, "transformer blocks");
  size("--microbatches", flags.model.microbatches, "parts of a batch; they divide --batch");
  command.add_option("--schedule", flags.schedule,
                     "in which order groups of devices (--mesh stage=4,fsdp=1) run their tasks: a "
                     "name of tessera schedule, auto, or FILE.csv");
  command.add_option("--timeline", flags.timeline,
                     "record the last step of a pipeline: FILE.svg, a picture, or FILE.json, a "
                     "trace for chrome://tracing");
  add_whole_number(command, flags.stages,
                   {.name = "--stages", .text = "pipeline stages; default: one per group"});
  add_choice(command, flags.inputs, "--inputs", {"ones", "normal"},
             "inputs and targets: all ones, or drawn from a normal distribution");
}

}  // namespace

void add_pipeline(CLI::App& train, CLI::App& show) {
  add_job<PipelineJob>(train, show,
                       {.name = "pipeline",
                        .help = "a deep transformer on micro-batches",
                        .report_name = "pipeline_transformer_fsdp",
                        .axes = {"fsdp"},
                        .group_axis = kGroupAxis},
                       add_flags);
}

}  // namespace tessera::cli
