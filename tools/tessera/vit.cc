// `tessera train vit`: the vision transformer of examples/vit.

#include <tessera/data.h>

#include "commands.h"
#include "job.h"
#include "vit/model.h"

namespace tessera::cli {

namespace {

struct Flags : TrainFlags {
  Flags() {
    mesh = "batch=4,model=2";
    params = "annotated";
    batch = 128;
    seed = 0;
    learning_rate = 1e-3;
  }
  vit::Config model;
};

using Batch = std::tuple<Array, Array>;  // images, labels

class VitJob final : public Job<vit::VisionTransformer, Batch> {
 public:
  VitJob(Flags flags, const Mesh& /*mesh*/) : flags_(std::move(flags)) {
    const vit::Config& model = flags_.model;
    flags_.model.dtype = compute_dtype(flags_);
    check_heads(model.heads, "--embed", model.embed);
    if (model.patch <= model.image) return;
    throw UserError({.what = "--patch: a patch is larger than an image",
                     .found = "--patch " + std::to_string(model.patch),
                     .wanted = "at most " + std::to_string(model.image),
                     .cure = "write for example --patch 4"});
  }

  vit::VisionTransformer make_model(const Key& key) const override {
    return {nn::Scope::nnx(key), flags_.model};
  }
  optim::Optimizer optimizer() const override {
    return optim::adam({.learning_rate = flags_.learning_rate});
  }
  std::tuple<Array, vit::VisionTransformer> loss_and_grads(const vit::VisionTransformer& params,
                                                           const Batch& batch,
                                                           const Array& step) const override {
    const auto& [images, labels] = batch;
    const Key dropout_key = random::split<2>(Key(flags_.seed))[1];
    const nn::Mode mode = nn::Mode::train(random::fold_in(dropout_key, step));
    return value_and_grad([&](const vit::VisionTransformer& model) {
      return vit::cross_entropy(model(images, mode), labels);
    })(params);
  }
  void load(Report& report) override {
    report.line("data       one batch of random images and labels");
    data::RandomState random(0);
    std::get<0>(data_) = random.standard_normal(image_shape());
    std::get<1>(data_) = random.randint(0, flags_.model.classes, {flags_.batch});
  }
  Batch batch(std::int64_t /*step*/) const override { return data_; }
  Batch blank_batch() const override {
    return {zeros(image_shape()), zeros({flags_.batch}, DType::i32)};
  }
  nlohmann::json config() const override {
    const vit::Config& m = flags_.model;
    return {{"layers", m.layers},   {"embed", m.embed},
            {"mlp_dim", m.mlp_dim}, {"heads", m.heads},
            {"patch", m.patch},     {"classes", m.classes},
            {"dropout", m.dropout}, {"pos_embed", m.has_positions},
            {"init", m.init}};
  }

 private:
  Shape image_shape() const { return {flags_.batch, flags_.model.image, flags_.model.image, 3}; }

  Flags flags_;
  Batch data_;
};

void add_flags(CLI::App& command, Flags& flags) {
  auto size = [&](const char* name, std::int64_t& value, const char* text) {
    add_whole_number(command, value, {.name = name, .text = text});
  };
  size("--layers", flags.model.layers, "encoder blocks");
  size("--embed", flags.model.embed, "width of the model");
  size("--mlp-dim", flags.model.mlp_dim, "width of the hidden layer of a block");
  size("--heads", flags.model.heads, "attention heads; they divide --embed");
  size("--patch", flags.model.patch, "height and width of a patch");
  add_probability(command, flags.model.dropout, "--dropout",
                  "the part of elements that is dropped");
  command.add_flag("--pos-embed", flags.model.has_positions, "learn an embedding of positions")
      ->disable_flag_override();
  add_choice(command, flags.model.init, "--init", {"xavier", "lecun"},
             "kernels from a uniform (xavier) or a normal (lecun) distribution");
}

}  // namespace

void add_vit(CLI::App& train, CLI::App& show) {
  add_job<VitJob>(train, show,
                  {.name = "vit",
                   .help = "a vision transformer",
                   .report_name = "vit",
                   .axes = {"batch", "model"}},
                  add_flags);
}

}  // namespace tessera::cli
