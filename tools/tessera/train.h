// The part of `tessera train MODEL`, `tessera show MODEL` and `tessera plan MODEL` that all models
// share.
#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/checkpoints.h"
#include "job.h"
#include "tools/cli/stop.h"
#include "tools/cli/waiting.h"

namespace tessera::cli {

/// Writes the initial parameters and the gradients of the first batch to a safetensors file.
template <typename J>
void dump(const std::string& path, const J& job, const TrainState<typename J::Model>& state,
          const typename J::Batch& batch) {
  const auto gradients = jit([&job](typename J::Model params, typename J::Batch first, Array step) {
    return std::get<1>(job.loss_and_grads(params, first, step));
  })(state.params, batch, state.step);
  std::vector<checkpoint::NamedArray> arrays = checkpoint::named_arrays(state.params, "params/");
  for (checkpoint::NamedArray& item : checkpoint::named_arrays(gradients, "grads/")) {
    arrays.push_back(std::move(item));
  }
  checkpoint::write_safetensors(path, std::move(arrays));
}

/// Writes the report of a run whose steps are done.
template <typename J, typename Model>
void report_end(J& job, const TrainFlags& flags, const JobInfo& info, const Model& params,
                float last_loss, const CompiledProgram& step, Report& report) {
  nlohmann::json config = job.config();
  config["optimizer"] = optimizer_config(flags);
  nlohmann::json extra = extra_of(config, checkpoint::named_arrays(params));
  job.finish(params, last_loss, report, extra);
  report.write_json(info.report_name, step, std::move(extra));
  report.check_lines();
}

/// The step of a job, compiled. The state of a pipeline is made in the groups where its step wants
/// it, so the step of a pipeline is lowered before the state exists, from shapes, and compiled. Any
/// other step is traced with its first arguments.
template <typename J>
class Step {
 public:
  using State = TrainState<typename J::Model>;
  using Batch = typename J::Batch;

  Step(const J& job, LoweredStep<J>& lowered) : job_(job), lowered_(lowered) {}

  void compile(const State& state, const std::function<Batch()>& first_batch) {
    if (is_pipeline()) {
      compiled_.emplace(lowered_.get().compile());
    } else {
      jitted_.emplace(make_step(job_));
      compiled_.emplace(jitted_->lower(state, first_batch()).compile());
    }
  }
  MemoryPlan memory() const { return compiled_->memory(); }
  /// Lets each group hold only the arrays that it reads.
  void place(State& state, Batch& batch) const {
    if (is_pipeline()) {
      std::tie(state, batch) = compiled_->place(std::move(state), std::move(batch));
    }
  }
  /// Returns the loss.
  Array run(State& state, const Batch& batch) const {
    Array loss;
    std::tie(state, loss) =
        is_pipeline() ? (*compiled_)(std::move(state), batch) : (*jitted_)(std::move(state), batch);
    return loss;
  }
  /// The program that was run last or, if none has run yet, the one that will be run first.
  CompiledProgram program(bool has_run) const {
    return has_run && !is_pipeline() ? jitted_->compiled() : CompiledProgram(*compiled_);
  }

 private:
  bool is_pipeline() const { return job_.mpmd_mesh().has_value(); }

  const J& job_;
  LoweredStep<J>& lowered_;
  std::optional<decltype(make_step(std::declval<const J&>()))> jitted_;
  std::optional<decltype(std::declval<LoweredStep<J>&>().get().compile())> compiled_;
};

/// Trains until the steps are done or `stop` asks to end. In both cases the state is saved. If
/// `stop` asked, the final report is left out.
template <typename J>
void train(J& job, TrainFlags flags, const JobInfo& info, const Mesh& devices, StopRequest& stop) {
  const Mesh mesh = mesh_of_arrays(job, devices);
  const use_mesh scope(mesh);
  const logical_axis_rules rules(job.logical_rules());
  job.complete(flags);
  Report report(flags, job.work());
  job.load(report);
  check_same_data(job.data_hash());
  auto waiting = std::make_optional<Waiting>("initialising the model");
  const StepShapes<J> shapes = shapes_of(job, flags, mesh, info);
  LoweredStep<J> lowered(job, shapes);
  job.prepare(lowered.facts());
  const Shardings places =
      job.mpmd_mesh() ? Shardings::of(lowered.get().arguments())["0"] : shapes.shardings[0];
  Checkpoints checkpoints(flags, info.name, job.config());
  const std::int64_t first = checkpoints.resumed().value_or(0);
  report.continues_at(first);
  if (first > 0) job.seek_data(first, checkpoints.data_position());
  auto state = checkpoints.resumed() ? checkpoints.restore(shapes.state, places, report)
                                     : first_state(job, flags, places);
  const auto first_batch = [&] { return place(job.batch(first), mesh, info); };
  if (!flags.dump.empty()) dump(flags.dump, job, state, first_batch());
  waiting.emplace("compiling the step");
  Step<J> step(job, lowered);
  step.compile(state, first_batch);
  waiting.reset();
  report.planned(step.memory());
  auto last_loss = static_cast<float>(checkpoints.last_loss().value_or(NAN));
  checkpoints.before_steps(first, state, job.data_position());
  std::int64_t done = first;
  for (; done < flags.steps && stop.begin(done); ++done) {
    report.begin_data();
    auto batch = place(job.batch(done), mesh, info);
    step.place(state, batch);
    reset_collective_counts();
    report.begin_profile(done, first);
    report.begin_step(done);
    const Array loss = step.run(state, batch);
    last_loss = loss.item<float>();
    report.end_step(done, last_loss);
    checkpoints.check_loss(done, last_loss, state);
    if (job.replan(done + 1 - first, lowered.facts(), report)) step.compile(state, first_batch);
    job.after_step(done, state.params, report);
    checkpoints.after_step(done + 1, state, last_loss, job.data_position());
  }
  if (done < flags.steps) report.stopped(stop.signal(), done);
  if (done > first) checkpoints.after_step(done, state, last_loss, job.data_position(), true);
  report.end_profile();
  checkpoints.finish(report);
  if (!stop.end()) return;
  if (first == flags.steps && checkpoints.last_loss()) report.add_earlier_loss(last_loss);
  report_end(job, flags, info, state.params, last_loss, step.program(done > first), report);
}

/// The plan of the host engine in the numerics that are nearest to those of a plugin.
template <typename J>
MemoryPlan host_memory(const J& job, const StepShapes<J>& shapes) {
  const Context context;
  const use_context scope(context);
  set_engine("host", std::source_location());
  set_numerics(Numerics::fast);
  return shapes.lower(job).compile().memory();
}

/// Lowers the step without running anything, and calls `use` with it.
template <typename J>
void with_lowered(J& job, const TrainFlags& flags, const JobInfo& info, const Mesh& devices,
                  const std::function<void(const LoweredProgram&, const StepFacts&)>& use) {
  const Mesh mesh = mesh_of_arrays(job, devices);
  const use_mesh scope(mesh);
  const logical_axis_rules rules(job.logical_rules());
  const StepShapes<J> shapes = shapes_of(job, flags, mesh, info);
  LoweredStep<J> lowered(job, shapes);
  job.prepare(lowered.facts());
  std::optional<Waiting> waiting("compiling the step");
  const auto& step = lowered.get();
  waiting.reset();
  use(step, {.costs = {},
             .memory = [&] { return step.compile().memory(); },
             .host_memory = [&] { return host_memory(job, shapes); }});
}

/// The sizes of the model and the flags of the optimiser.
template <typename J>
nlohmann::json config_of(const J& job, const TrainFlags& flags) {
  nlohmann::json config = job.config();
  config["optimizer"] = optimizer_config(flags);
  return config;
}

}  // namespace tessera::cli
