// `tessera train pipeline`: the transformer of examples/pipeline on micro-batches, its state split
// over the axis fsdp.

#include <tessera/data.h>

#include "commands.h"
#include "job.h"
#include "pipeline/model.h"

namespace tessera::cli {

namespace {

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
};

using Batch = std::tuple<Array, Array>;  // inputs, targets

class PipelineJob final : public Job<pipeline::Transformer, Batch> {
 public:
  PipelineJob(Flags flags, const Mesh& /*mesh*/) : flags_(std::move(flags)) {
    const pipeline::Config& model = flags_.model;
    flags_.model.dtype = compute_dtype(flags_);
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

  pipeline::Transformer make_model(const Key& key) const override {
    return {nn::Scope(key), flags_.model};
  }
  optim::Optimizer optimizer() const override {
    return optim::adamw({.learning_rate = flags_.learning_rate});
  }
  std::tuple<Array, pipeline::Transformer> loss_and_grads(const pipeline::Transformer& params,
                                                          const Batch& batch,
                                                          const Array& /*step*/) const override {
    const auto& [xs, targets] = batch;
    return pipeline::accumulate(params, xs, targets, flags_.model.microbatches);
  }
  void load(Report& /*report*/) override {
    const Array x = ones(shape());
    data_ = {x, x};
    if (flags_.inputs == "ones") return;
    data::RandomState random(0);
    std::get<0>(data_) = random.standard_normal(shape());
    std::get<1>(data_) = random.standard_normal(shape());
  }
  Batch batch(std::int64_t /*step*/) const override { return data_; }
  Batch blank_batch() const override { return {zeros(shape()), zeros(shape())}; }
  nlohmann::json config() const override {
    const pipeline::Config& m = flags_.model;
    return {{"seq", m.seq},       {"d_model", m.d_model},           {"heads", m.heads},
            {"layers", m.layers}, {"microbatches", m.microbatches}, {"inputs", flags_.inputs}};
  }

 private:
  Shape shape() const { return {flags_.batch, flags_.model.seq, flags_.model.d_model}; }

  Flags flags_;
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
  add_choice(command, flags.inputs, "--inputs", {"ones", "normal"},
             "inputs and targets: all ones, or drawn from a normal distribution");
}

}  // namespace

void add_pipeline(CLI::App& train, CLI::App& show) {
  add_job<PipelineJob>(train, show,
                       {.name = "pipeline",
                        .help = "a deep transformer on micro-batches",
                        .report_name = "pipeline_transformer_fsdp",
                        .axes = {"fsdp"}},
                       add_flags);
}

}  // namespace tessera::cli
