// `tessera train mlp`: the perceptron of examples/mlp, sharded by its annotations.

#include "add_job.h"
#include "commands.h"
#include "job.h"
#include "mlp/model.h"

namespace tessera::cli {

namespace {

struct MlpFlags : TrainFlags {
  MlpFlags() {
    mesh = "data=2,model=4";
    params = "annotated";
    steps = 30;
    batch = 8;
    seed = 0;
    learning_rate = 1e-3;
    optimizer.name = "adam";
  }
  mlp::Config model;
  bool is_logical = false;
};

JobInfo mlp_info() {
  return {.name = "mlp",
          .help = "a multi-layer perceptron with annotated weights",
          .report_name = "pjit_mlp",
          .axes = {"data", "model"}};
}

/// The perceptron annotated with mesh axes, or the one with logical axis names.
struct AnyMlp {
  std::optional<mlp::MLP> plain;
  std::optional<mlp::LogicalMLP> logical;

  AnyMlp(const nn::Scope& scope, const MlpFlags& flags) {
    if (flags.is_logical) {
      logical.emplace(scope, flags.model);
    } else {
      plain.emplace(scope, flags.model);
    }
  }
  Array operator()(const Array& x) const { return plain ? (*plain)(x) : (*logical)(x); }
  TESSERA_MODULE(plain, logical)
};

class MlpJob final : public Job<AnyMlp, Array> {
 public:
  MlpJob(MlpFlags flags, Mesh mesh) : flags_(std::move(flags)), mesh_(std::move(mesh)) {}

  AnyMlp make_model(const Key& key) const override { return {nn::Scope(key), flags_}; }
  LogicalRules logical_rules() const override { return {{"batch", "data"}, {"hidden", "model"}}; }
  std::tuple<Array, AnyMlp> loss_and_grads(const AnyMlp& params, const Array& x,
                                           const Array& /*step*/) const override {
    const Array inputs = astype(x, compute_dtype(flags_));
    return value_and_grad(
        [&](const AnyMlp& model) { return sum(astype(model(inputs), DType::f32)); })(params);
  }
  Array batch(std::int64_t /*step*/) const override {
    return ones_of({flags_.batch, flags_.model.depth}, batch_sharding(mesh_, mlp_info()));
  }
  Array blank_batch() const override { return zeros({flags_.batch, flags_.model.depth}); }
  StepWork work() const override { return {.count = flags_.batch, .unit = "rows"}; }
  nlohmann::json config() const override {
    return {{"depth", flags_.model.depth},
            {"layers", flags_.model.layers},
            {"scan", flags_.model.use_scan},
            {"logical", flags_.is_logical}};
  }

 private:
  MlpFlags flags_;
  Mesh mesh_;
};

void add_mlp_flags(Command& command, MlpFlags& flags) {
  add_whole_number(command, flags.model.depth, {.name = "--depth", .text = "width of all layers"});
  add_whole_number(command, flags.model.layers, {.name = "--layers", .text = "number of layers"});
  command
      .add_flag("--scan,!--loop", flags.model.use_scan,
                "run the layers as one compiled loop (--scan, the default) or unrolled (--loop)")
      ->disable_flag_override();
  command
      .add_flag("--logical", flags.is_logical,
                "annotate dimensions with logical names, which rules map to mesh axes")
      ->disable_flag_override();
}

}  // namespace

void add_mlp(const ModelCommands& commands) {
  add_job<MlpJob>(commands, mlp_info(), add_mlp_flags);
}

}  // namespace tessera::cli
