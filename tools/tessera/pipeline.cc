// `tessera train pipeline`: the transformer of examples/pipeline on microbatches. Its state is
// split over the axis fsdp, and its layers over the groups of the axis stage.

#include <algorithm>

#include <tessera/data.h>

#include "add_job.h"
#include "commands.h"
#include "job.h"
#include "pipeline/model.h"
#include "pipeline_plan.h"
#include "tools/cli/output_file.h"

namespace tessera::cli {

namespace {

constexpr const char* kGroupAxis = "stage";
JobInfo pipeline_info() {
  return {.name = "pipeline",
          .help = "a deep transformer on microbatches",
          .report_name = "pipeline_transformer_fsdp",
          .axes = {"fsdp"},
          .group_axis = kGroupAxis};
}
/// The schedule is searched again after this number of steps, with the times of all but the first
/// one, which runs with cold caches.
constexpr std::int64_t kMeasuredSteps = 3;

struct PipelineFlags : TrainFlags {
  PipelineFlags() {
    mesh = "fsdp=4";
    params = "fsdp";
    steps = 6;
    batch = 8;
    seed = 0;
    learning_rate = 1e-3;
  }
  pipeline::Config model;
  std::string inputs = "normal";
  std::string timeline;           // file
  std::string schedule;           // empty: Interleaved1F1B on groups, else a loop of one program
  std::string stages;             // empty: one per group
  std::int64_t memory_limit = 0;  // MiB; 0: none

  /// With --stages, a mesh with one group for each stage.
  std::string mesh_to_plan() const {
    const std::int64_t count = stages.empty() ? 0 : stages_of(stages).count;
    return count > 0 ? "stage=" + std::to_string(count) + ",fsdp=1" : mesh;
  }
};

using Batch = std::tuple<Array, Array>;  // inputs, targets

class PipelineJob final : public Job<pipeline::Transformer, Batch> {
 public:
  PipelineJob(PipelineFlags flags, const Mesh& mesh) : flags_(std::move(flags)), mesh_(mesh) {
    flags_.model.dtype = compute_dtype(flags_);
    check_sizes();
    if (mesh.has_axis(kGroupAxis)) {
      groups_.emplace(mesh, kGroupAxis);
      if (flags_.schedule.empty()) flags_.schedule = "Interleaved1F1B";
    }
    check_timeline();
    check_search();
    check_engine();
    const StagesFlag stages = stages_of(flags_.stages);
    if (!groups_) {
      check_one_program();
      return;
    }
    const std::int64_t groups = groups_->mpmd_dim();
    is_cut_ = stages.is_cut;
    set_stages(stages.count == 0 ? groups : stages.count);
    plan_.emplace(PlanOptions{
        .schedule = flags_.schedule,
        .stages = {.count = stages.is_cut ? stages.count : flags_.model.stages, .is_cut = is_cut_},
        .groups = groups,
        .microbatches = flags_.model.microbatches,
        .memory_limit = static_cast<double>(flags_.memory_limit) * 1048576});
    if (is_cut_) flags_.model.stages = 0;
  }
  std::optional<MpmdMesh> mpmd_mesh() const override { return groups_; }
  std::optional<AutoStages> auto_stages() const override {
    return is_cut_ ? std::make_optional(AutoStages{}) : std::nullopt;
  }
  void prepare(const LowerStep& lower) override {
    if (groups_) plan_->choose(lower);
  }
  int plan_number() const override { return plan_ ? plan_->number() : 0; }
  bool replan(std::int64_t steps_done, const LowerStep& lower, Report& report) override {
    if (!groups_ || !plan_->is_searched()) return false;
    if (steps_done == 1) start_timeline();
    if (steps_done != kMeasuredSteps) return false;
    const ScheduleCosts measured = measured_costs(stop_timeline(), plan_->num_stages());
    plan_->search(measured, lower);
    report.line("plan  " + plan_->text() + "; schedule searched again with the measured times");
    return true;
  }

  pipeline::Transformer make_model(const Key& key) const override {
    return {nn::Scope(key), flags_.model};
  }
  std::tuple<Array, pipeline::Transformer> loss_and_grads(const pipeline::Transformer& params,
                                                          const Batch& batch,
                                                          const Array& /*step*/) const override {
    const auto& [xs, targets] = batch;
    const std::int64_t count = flags_.model.microbatches;
    if (plan_) return pipeline::accumulate(params, xs, targets, count, plan_->schedule());
    return pipeline::accumulate(params, xs, targets, count);
  }
  void load(Report& /*report*/) override {
    check_steps();
    if (has_timeline()) check_writable("--timeline", flags_.timeline);
    // after_step() starts the recording of the last step, which is too late for a run of one step.
    if (has_timeline()) start_timeline();
    const NamedSharding rows = batch_sharding(mesh_of_arrays(*this, mesh_), pipeline_info());
    if (flags_.inputs == "ones") {
      const Array x = ones_of(shape(), rows);
      data_ = {x, x};
      return;
    }
    data::RandomState random(0);
    std::get<0>(data_) = random.standard_normal(shape(), rows);
    std::get<1>(data_) = random.standard_normal(shape(), rows);
  }
  /// Starts the recording of the last step.
  void after_step(std::int64_t step, const pipeline::Transformer& /*params*/,
                  Report& /*report*/) override {
    if (has_timeline() && step == flags_.steps - 2) start_timeline();
  }
  void finish(const pipeline::Transformer& /*params*/, float /*last_loss*/, Report& /*report*/,
              nlohmann::json& extra) const override {
    // Not in config(), which must not change when a run is resumed. The stages may change.
    extra["config"]["stages"] = plan_ ? plan_->num_stages() : flags_.model.stages;
    extra["config"]["cut"] = is_cut_ ? "auto" : "marks";
    extra["config"]["schedule"] = flags_.schedule;
    if (groups_) extra["stages"] = stages_json();
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
          {.what =
               "--heads: the number of heads does not divide an eighth of the width of the model",
           .found = "--heads " + std::to_string(model.heads) + " and --d-model " +
                    std::to_string(model.d_model),
           .wanted = "a --d-model that is a multiple of 8 times --heads",
           .cure = "write for example --heads 8 --d-model 256"});
    }
    if (flags_.batch % model.microbatches == 0) return;
    throw UserError({.what = "--microbatches: the number of microbatches does not divide the batch",
                     .found = "--microbatches " + std::to_string(model.microbatches) +
                              " and --batch " + std::to_string(flags_.batch),
                     .wanted = "a --batch that is a multiple of --microbatches",
                     .cure = "write for example --batch 8 --microbatches 4"});
  }

  void set_stages(std::int64_t count) {
    pipeline::Config& model = flags_.model;
    model.stages = count;
    if (is_cut_ || model.stages <= model.layers) return;
    throw UserError({.what = "--stages: there are more stages than layers",
                     .found = "--stages " + std::to_string(model.stages) + " and --layers " +
                              std::to_string(model.layers),
                     .wanted = "at least one layer per stage",
                     .cure = "write for example --layers " + std::to_string(model.stages)});
  }

  bool has_timeline() const { return !flags_.timeline.empty(); }

  /// Throws UserError for flags that only groups of devices can follow.
  void check_one_program() const {
    const bool has_schedule = !flags_.schedule.empty();
    if (!has_schedule && flags_.stages.empty()) return;
    const std::string flag = has_schedule ? "--schedule" : "--stages";
    throw UserError(
        {.what = flag + ": the mesh has no groups of devices, each of which runs some stages",
         .found = flag + " " + (has_schedule ? flags_.schedule : flags_.stages) + " and --mesh " +
                  flags_.mesh,
         .wanted = "a mesh with an axis named stage",
         .cure = "write for example --mesh stage=4, or leave out " + flag});
  }

  void check_timeline() const {
    const bool is_known = flags_.timeline.ends_with(".svg") || flags_.timeline.ends_with(".json");
    if (!has_timeline() || (groups_ && is_known)) return;
    throw UserError({.what = "--timeline: the last step cannot be recorded",
                     .found = "--timeline " + flags_.timeline + " and --mesh " + flags_.mesh,
                     .wanted = "FILE.svg or FILE.json, and groups of devices",
                     .cure = "write for example --mesh stage=4 --timeline step.svg"});
  }

  void check_steps() const {
    if (!groups_ || !plan_->is_searched() || flags_.steps > kMeasuredSteps) return;
    throw UserError({.what = "--schedule auto: there are too few steps to measure",
                     .found = "--steps " + std::to_string(flags_.steps),
                     .wanted = "at least " + std::to_string(kMeasuredSteps + 1) + ": after " +
                               std::to_string(kMeasuredSteps) +
                               " steps the schedule is searched again with the measured times",
                     .cure = "write for example --steps 10, or name a schedule"});
  }

  void check_search() const {
    const bool searches = flags_.schedule == "auto" && groups_;
    if (flags_.memory_limit > 0 && !searches) {
      throw UserError(
          {.what = "--memory-limit: the limit needs a search for a schedule",
           .found = "--schedule " + flags_.schedule + " and --mesh " + flags_.mesh,
           .wanted = "--schedule auto, and groups of devices",
           .cure = "write --mesh stage=4 --schedule auto, or leave out --memory-limit"});
    }
  }

  void check_engine() const {
    const bool is_searched = groups_ && flags_.schedule == "auto";
    if (engine() != "pjrt" || !(has_timeline() || is_searched)) return;
    const std::string flag = has_timeline() ? "--timeline " + flags_.timeline : "--schedule auto";
    throw UserError({.what = flag + ": only the host engine times the tasks of a pipeline",
                     .found = "--engine " + std::string(engine()),
                     .wanted = "the host engine",
                     .cure = "leave out " + flag + ", or --engine"});
  }

  nlohmann::json stages_json() const {
    nlohmann::json stages = nlohmann::json::object();
    for (const StageCosts& stage : plan_->costs().stages) {
      stages["costs"].push_back({{"fwd_ms", stage.fwd * 1e3},
                                 {"bwd_input_ms", stage.bwd_input * 1e3},
                                 {"bwd_weight_ms", stage.bwd_weight * 1e3},
                                 {"held_bytes", stage.memory}});
    }
    stages["imbalance"] = imbalance(plan_->costs());
    return stages;
  }

  /// Writes the last step as a trace, or as a picture beside a simulation with the measured times
  /// of its tasks.
  void write_timeline(nlohmann::json& extra) const {
    const ScheduleTasks tasks = plan_->tasks();
    std::vector<TaskTime> times = stop_timeline();
    if (times.empty()) return;  // this run had no steps left
    for (TaskTime& time : times) {
      time.start *= 1e3;
      time.end *= 1e3;
    }
    const Simulation run = measured(tasks, times);
    const ScheduleCosts costs = measured_costs(times, plan_->num_stages());
    const Simulation planned = simulate(tasks, costs);
    extra["bubble"] = {{"measured", run.bubble}, {"simulated", planned.bubble}};
    extra["stages"]["measured_imbalance"] = imbalance(costs);
    if (process_index() != 0) return;
    const bool is_picture = flags_.timeline.ends_with(".svg");
    write_file(
        "--timeline", flags_.timeline,
        is_picture
            ? to_svg({{flags_.schedule + ", planned with the measured times, in ms", planned},
                      {flags_.schedule + ", one step as it ran, in ms", run}})
            : to_chrome_trace(run));
  }

  Shape shape() const { return {flags_.batch, flags_.model.seq, flags_.model.d_model}; }

  PipelineFlags flags_;
  Mesh mesh_;
  std::optional<MpmdMesh> groups_;
  bool is_cut_ = false;  // stages are cut by estimated costs, not at the marks of the model
  std::optional<PipelinePlan> plan_;
  Batch data_;
};

void add_pipeline_flags(Command& command, PipelineFlags& flags) {
  auto size = [&](const char* name, std::int64_t& value, const char* text) {
    add_whole_number(command, value, {.name = name, .text = text});
  };
  size("--seq", flags.model.seq, "length of a sequence");
  size("--d-model", flags.model.d_model, "width of the model");
  size("--heads", flags.model.heads,
       "attention heads; their number must divide an eighth of --d-model");
  size("--layers", flags.model.layers, "transformer blocks");
  size("--microbatches", flags.model.microbatches,
       "microbatches per step; their number must divide --batch");
  command.add_option("--schedule", flags.schedule,
                     "the order in which groups of devices (--mesh stage=4) run their tasks: a "
                     "name that tessera schedule lists, auto, or FILE.csv");
  add_path(command, flags.timeline, "--timeline",
           "record the last step of a pipeline: FILE.svg is a picture, FILE.json a trace for "
           "chrome://tracing",
           "step.svg");
  command.add_option("--stages", flags.stages,
                     "pipeline stages; default: one per group; auto:8 cuts the model into 8 stages "
                     "by their estimated costs, and auto also chooses the number of stages");
  size("--memory-limit", flags.memory_limit,
       "for --schedule auto: the most MiB that the plan may use on a device of any group");
  add_choice(command, flags.inputs, "--inputs", {"ones", "normal"},
             "inputs and targets: all ones, or drawn from a normal distribution");
}

}  // namespace

void add_pipeline(const ModelCommands& commands) {
  add_job<PipelineJob>(commands, pipeline_info(), add_pipeline_flags);
}

}  // namespace tessera::cli
