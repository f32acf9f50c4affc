// A model as the commands train, show and plan it, and its step.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/checkpoint.h>
#include <tessera/error.h>
#include <tessera/optim.h>
#include <tessera/tessera.h>

#include "report.h"
#include "show.h"

namespace tessera::cli {

/// What is known about a step before it runs.
struct StepFacts {
  std::function<ScheduleCosts()> costs;  // the estimated costs of a pipeline's stages
  std::function<MemoryPlan()> memory;    // compiles the step
  /// On a PJRT plugin: what the host engine would plan for the step.
  std::function<MemoryPlan()> host_memory = {};
};
/// Lowers the step of a job in the state that the job has now.
using LowerStep = std::function<StepFacts()>;

/// A model and its batches, as the commands train it. Both types are trees.
template <typename ModelType, typename BatchType>
class Job {
 public:
  using Model = ModelType;
  using Batch = BatchType;
  virtual ~Job() = default;

  /// Whether the step reports the op that makes a NaN or an infinity.
  bool check_nans = false;

  virtual Model make_model(const Key& key) const = 0;
  /// The parameters that a new run begins with instead of those of make_model().
  virtual std::optional<Model> pretrained() const { return std::nullopt; }
  /// The groups that the step runs on as a pipeline; nullopt for a step of one program.
  virtual std::optional<MpmdMesh> mpmd_mesh() const { return std::nullopt; }
  /// How a pipeline's stages are cut automatically; nullopt if the model marks them.
  virtual std::optional<AutoStages> auto_stages() const { return std::nullopt; }
  /// Called before the step is made, so that the job can choose how to make it.
  virtual void prepare(const LowerStep& /*lower*/) {}
  /// Changes whenever the job changes how the step is made.
  virtual int plan_number() const { return 0; }
  /// Called after a step. Returns true if the job has changed how the step is made, so that it must
  /// be made again.
  virtual bool replan(std::int64_t /*steps_done*/, const LowerStep& /*lower*/, Report& /*report*/) {
    return false;
  }
  /// Maps the logical axis names of the model to mesh axes.
  virtual LogicalRules logical_rules() const { return {}; }
  /// The loss, a scalar, and its gradients. `step`: i32[], the number of steps done.
  virtual std::tuple<Array, Model> loss_and_grads(const Model& params, const Batch& batch,
                                                  const Array& step) const = 0;
  /// Sets the flags whose values depend on the data; called before everything else.
  virtual void complete(TrainFlags& /*flags*/) {}
  /// Loads the data; called once, before the first batch.
  virtual void load(Report& /*report*/) {}
  /// A hash of the data from files, which must be the same in all processes.
  virtual std::uint64_t data_hash() const { return 0; }
  virtual Batch batch(std::int64_t step) const = 0;
  /// What one step processes, for rates such as images per second.
  virtual StepWork work() const = 0;
  /// The position in the data after the last batch, which is saved with the state. Empty if
  /// batch(step) depends on the step only.
  virtual std::vector<std::int64_t> data_position() const { return {}; }
  /// Resumes: the next step is `step`, and `position` is the data_position() that was saved.
  virtual void seek_data(std::int64_t /*step*/, const std::vector<std::int64_t>& /*position*/) {}
  /// A batch of zeros, for its types.
  virtual Batch blank_batch() const = 0;
  /// The sizes of the model, for the report.
  virtual nlohmann::json config() const = 0;
  /// Called after each step.
  virtual void after_step(std::int64_t /*step*/, const Model& /*params*/, Report& /*report*/) {}
  /// Reports what the job adds about the trained model; may add members to `extra`.
  virtual void finish(const Model& /*params*/, float /*last_loss*/, Report& /*report*/,
                      nlohmann::json& /*extra*/) const {}
};

struct JobInfo {
  std::string name;  // as in `tessera train NAME`
  std::string help;
  std::string report_name;        // in the JSON object
  std::vector<std::string> axes;  // a mesh must have these; the first one splits the batch
  std::string group_axis = {};    // if the mesh has this axis, it divides the devices into groups
};

/// The mesh of --mesh; throws UserError if it lacks an axis of the job. If the group axis is its
/// only axis, each group is one device: the other axes are added with size 1.
Mesh mesh_of(const TrainFlags& flags, const JobInfo& info);
/// The number of groups of a pipeline on the mesh; 1 without a group axis.
std::int64_t num_groups(const Mesh& mesh, const JobInfo& info);
/// Splits batches over the first axis of the job; one device without a mesh.
inline NamedSharding batch_sharding(const Mesh& mesh, const JobInfo& info) {
  return mesh.axes().empty() ? NamedSharding() : NamedSharding(mesh, P{info.axes[0].c_str()});
}
/// Gives the batch this sharding; without a mesh, returns it as it is.
template <typename Batch>
Batch place(const Batch& batch, const Mesh& mesh, const JobInfo& info) {
  if (mesh.axes().empty()) return batch;
  return device_put(batch, Shardings(batch_sharding(mesh, info)));
}
/// An array of ones; each process makes its own tiles only.
Array ones_of(const Shape& shape, const NamedSharding& sharding);
/// Throws UserError unless all processes have the same data_hash().
void check_same_data(std::uint64_t data_hash);
/// Adds bytes to a hash (FNV-1a), which begins with kNoBytes.
inline constexpr std::uint64_t kNoBytes = 0xcbf29ce484222325;
std::uint64_t hash_with(std::uint64_t hash, std::span<const std::byte> bytes);
/// Throws UserError unless the heads divide the width, the value of the flag `width_name`.
void check_heads(std::int64_t heads, const std::string& width_name, std::int64_t width);
/// Members of the report: sizes, parameters, and the collectives of the last step.
nlohmann::json extra_of(const nlohmann::json& config,
                        const std::vector<checkpoint::NamedArray>& params);

template <typename J>
auto init_of(const J& job, const TrainFlags& flags) {
  return [&job, tx = optimizer_of(flags)](Key key) {
    return TrainState(job.make_model(key), tx, std::source_location());
  };
}

/// The state that a run begins with.
template <typename J>
auto first_state(const J& job, const TrainFlags& flags, const Shardings& places) {
  using Model = typename J::Model;
  if (std::optional<Model> params = job.pretrained()) {
    const auto begin = [tx = optimizer_of(flags)](Model model) {
      return TrainState(std::move(model), tx, std::source_location());
    };
    return jit(begin, {.out_shardings = places, .name = "init"})(*std::move(params));
  }
  return jit(init_of(job, flags), {.out_shardings = places, .name = "init"})(Key(flags.seed));
}

/// The shardings that --params asks for, by the logical axis rules in scope; unspecified without a
/// mesh.
template <typename State>
Shardings state_shardings(const TrainFlags& flags, const Mesh& mesh, const JobInfo& info,
                          const State& shapes) {
  if (mesh.axes().empty()) return {};
  if (flags.params == "fsdp") return fsdp_shardings(mesh, shapes, info.axes[0]);
  if (flags.params == "annotated") return logical_to_mesh(get_partition_spec(shapes));
  return replicated(mesh, shapes);
}

/// The mesh that the state and the batches of a job are split over: that of a group for pipelines,
/// else all devices.
template <typename J>
Mesh mesh_of_arrays(const J& job, const Mesh& devices) {
  const std::optional<MpmdMesh> groups = job.mpmd_mesh();
  return groups ? groups->group_mesh() : devices;
}

/// The jitted step: (state, batch) -> (next state, loss).
template <typename J>
auto make_step(const J& job, std::vector<Shardings> in_shardings = {}) {
  return jit(
      [&job](TrainState<typename J::Model> old, typename J::Batch batch) {
        auto [loss, grads] = job.loss_and_grads(old.params, batch, old.step);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      {.in_shardings = std::move(in_shardings),
       .donate_argnums = {0},
       .name = "train_step",
       .check_finite = job.check_nans,
       .mpmd_mesh = job.mpmd_mesh(),
       .auto_stages = job.auto_stages()});
}

/// What the step of a job takes, without values.
template <typename J>
struct StepShapes {
  TrainState<typename J::Model> state;
  typename J::Batch batch;
  std::vector<Shardings> shardings;  // of both

  auto lower(const J& job) const { return make_step(job, shardings).lower(state, batch); }
};

template <typename J>
StepShapes<J> shapes_of(const J& job, const TrainFlags& flags, const Mesh& mesh,
                        const JobInfo& info) {
  auto state = eval_shape(init_of(job, flags), Key(flags.seed));
  const Shardings states = state_shardings(flags, mesh, info, state);
  const Shardings batches =
      mesh.axes().empty() ? Shardings() : Shardings(batch_sharding(mesh, info));
  return {std::move(state), eval_shape([&] { return job.blank_batch(); }), {states, batches}};
}

/// The step of a job as it is lowered from shapes, once for each plan of the job.
template <typename J>
class LoweredStep {
 public:
  LoweredStep(const J& job, const StepShapes<J>& shapes) : job_(job), shapes_(shapes) {}

  /// Forgets all other plans.
  const auto& get() {
    const int plan = job_.plan_number();
    std::erase_if(of_plans_, [&](const auto& item) { return item.first != plan; });
    return lowered();
  }
  LowerStep facts() {
    return [this] {
      return StepFacts{.costs = [step = lowered()] { return step.stage_costs(); },
                       .memory = [this] { return get().compile().memory(); }};
    };
  }

 private:
  using Lowered = decltype(std::declval<const StepShapes<J>&>().lower(std::declval<const J&>()));

  const Lowered& lowered() {
    const int plan = job_.plan_number();
    const auto known = of_plans_.find(plan);
    return known != of_plans_.end() ? known->second
                                    : of_plans_.emplace(plan, shapes_.lower(job_)).first->second;
  }

  const J& job_;
  const StepShapes<J>& shapes_;
  std::map<int, Lowered> of_plans_;
};

}  // namespace tessera::cli
