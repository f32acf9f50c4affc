// `tessera train vit`: the vision transformer of examples/vit, on CIFAR-10 or on random images.

#include <array>
#include <cstdio>
#include <optional>

#include <tessera/data.h>

#include "add_job.h"
#include "commands.h"
#include "job.h"
#include "vit/data.h"
#include "vit/model.h"

namespace tessera::cli {

namespace {

struct VitFlags : TrainFlags {
  VitFlags() {
    mesh = "batch=4,model=2";
    params = "annotated";
    batch = 128;
    seed = 0;
    learning_rate = 1e-3;
    optimizer.name = "adam";
  }
  vit::Config model;
  std::string data;
  bool no_flip = false;
  std::int64_t epochs = 0;  // 0: --steps
};

using Batch = std::tuple<Array, Array>;  // images, labels

JobInfo vit_info() {
  return {.name = "vit",
          .help = "a vision transformer",
          .report_name = "vit",
          .axes = {"batch", "model"}};
}

/// How a model does on images that it is not trained on.
struct Evaluation {
  double loss = 0;      // mean over the images, in nats
  double accuracy = 0;  // the fraction of images whose label has the largest logit
};

Evaluation evaluate(const vit::VisionTransformer& params, const data::Dataset& images,
                    std::int64_t batch_size, const Mesh& mesh) {
  auto judge = jit([](const vit::VisionTransformer& model, Array x, Array labels) {
    const Array logits = model(x);
    const Array is_right = equal(argmax(logits, 1), labels);
    return std::tuple(vit::cross_entropy(logits, labels), sum(astype(is_right, DType::i32)));
  });
  Evaluation sum;
  data::Batches batches = images | data::map(vit::normalise) | data::batch(batch_size);
  batches.place(batch_sharding(mesh, vit_info()));
  while (const auto arrays = batches.next()) {
    const Array labels = arrays->at(1);
    const auto [loss, right] = judge(params, arrays->at(0), labels);
    sum.loss += loss.item<double>() * static_cast<double>(labels.dim(0));
    sum.accuracy += right.item<double>();
  }
  const auto count = static_cast<double>(images.size());
  return {.loss = sum.loss / count, .accuracy = sum.accuracy / count};
}

std::string text_of(const std::string& name, const Evaluation& found) {
  char text[96];
  std::snprintf(text, sizeof(text), "%-9s  loss %.4f, accuracy %.2f %%", name.c_str(),
                printable(found.loss), 100 * found.accuracy);
  return text;
}

class VitJob final : public Job<vit::VisionTransformer, Batch> {
 public:
  VitJob(VitFlags flags, Mesh mesh) : flags_(std::move(flags)), mesh_(std::move(mesh)) {
    const vit::Config& model = flags_.model;
    flags_.model.dtype = compute_dtype(flags_);
    check_heads(model.heads, "--embed", model.embed);
    if (model.patch > model.image) {
      throw UserError({.what = "--patch: a patch is larger than an image",
                       .found = "--patch " + std::to_string(model.patch),
                       .wanted = "at most " + std::to_string(model.image),
                       .cure = "write for example --patch 4"});
    }
    if (!flags_.data.empty()) return;
    if (flags_.epochs > 0 || flags_.no_flip) {
      throw UserError({.what = "--data: the flag is missing, and another flag needs it",
                       .found = flags_.no_flip ? "--no-flip" : "--epochs",
                       .wanted = "images in files",
                       .cure = "add --data FOLDER with the files of CIFAR-10"});
    }
  }

  vit::VisionTransformer make_model(const Key& key) const override {
    return {nn::Scope::nnx(key), flags_.model};
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
  void complete(TrainFlags& flags) override {
    if (flags_.data.empty()) return;
    const data::Dataset images = vit::training_data(flags_.data, !flags_.no_flip, kNowhere);
    steps_per_epoch_ = images.order().num_records / flags_.batch;
    if (steps_per_epoch_ == 0) {
      throw UserError({.what = "--batch: the batch is larger than the data",
                       .found = "--batch " + std::to_string(flags_.batch) + " and " +
                                std::to_string(images.order().num_records) + " training images",
                       .wanted = "at least one whole batch in an epoch",
                       .cure = "use a smaller --batch"});
    }
    validation_ = data::cifar10(flags_.data, data::Split::validation, kNowhere);
    test_ = data::cifar10(flags_.data, data::Split::test, kNowhere);
    train_ = images | data::map(vit::normalise) | data::batch(flags_.batch, data::drop_remainder);
    train_->place(batch_sharding(mesh_, vit_info()));
    if (flags_.epochs > 0) flags.steps = flags_.epochs * steps_per_epoch_;
    num_train_ = images.order().num_records;
  }
  void load(Report& report) override {
    if (train_) {
      report.line("data       " + std::to_string(num_train_) + " images to train on, " +
                  std::to_string(validation_->size()) + " to validate, " +
                  std::to_string(test_->size()) + " to test; an epoch is " +
                  std::to_string(steps_per_epoch_) + " steps");
      return;
    }
    report.line("data       one batch of random images and labels");
    data::RandomState random(0);
    const NamedSharding rows = batch_sharding(mesh_, vit_info());
    std::get<0>(data_) = random.standard_normal(image_shape(), rows);
    std::get<1>(data_) = random.randint(0, flags_.model.classes, {flags_.batch}, rows);
  }
  /// A hash of some of the images, and of their number and order.
  std::uint64_t data_hash() const override {
    if (!train_) return 0;
    constexpr std::int64_t kImages = 64;
    const data::Dataset images = data::cifar10(flags_.data, data::Split::train, kNowhere);
    std::uint64_t hash = kNoBytes;
    for (const std::int64_t x : train_->position().integers()) {
      hash = hash_with(hash, std::as_bytes(std::span(&x, 1)));
    }
    for (std::int64_t i = 0; i < std::min(kImages, images.size()); ++i) {
      for (const data::HostArray& field : images.read(i * images.size() / kImages)) {
        std::visit([&](const auto& x) { hash = hash_with(hash, std::as_bytes(std::span(x))); },
                   field.values);
      }
    }
    return hash;
  }
  Batch batch(std::int64_t step) const override {
    while (train_ && given_ <= step) {
      const auto arrays = train_->next();
      data_ = {arrays->at(0), arrays->at(1)};
      ++given_;
    }
    return data_;
  }
  void after_step(std::int64_t step, const vit::VisionTransformer& params,
                  Report& report) override {
    if (!train_ || (step + 1) % steps_per_epoch_ != 0) return;
    const std::int64_t epoch = (step + 1) / steps_per_epoch_;
    if (epochs_.empty()) first_epoch_ = epoch;
    const Evaluation found = evaluate(params, *validation_, flags_.batch, mesh_);
    report.line(text_of("epoch " + std::to_string(epoch), found) + " on the validation images");
    report.scalar("validation/loss", found.loss, step);
    report.scalar("validation/accuracy", found.accuracy, step);
    epochs_.push_back({{"validation_loss", found.loss}, {"validation_accuracy", found.accuracy}});
  }
  void finish(const vit::VisionTransformer& params, float /*last_loss*/, Report& report,
              nlohmann::json& extra) const override {
    if (!train_) return;
    const Evaluation found = evaluate(params, *test_, flags_.batch, mesh_);
    report.line(text_of("test", found));
    extra["epochs"] = epochs_;
    extra["first_epoch"] = first_epoch_;
    extra["test_loss"] = found.loss;
    extra["test_accuracy"] = found.accuracy;
    extra["steps_per_epoch"] = steps_per_epoch_;
  }
  StepWork work() const override { return {.count = flags_.batch, .unit = "images"}; }
  std::vector<std::int64_t> data_position() const override {
    if (!train_) return {};
    const std::array<std::int64_t, 7> integers = train_->position().integers();
    return {integers.begin(), integers.end()};
  }
  void seek_data(std::int64_t step, const std::vector<std::int64_t>& position) override {
    if (!train_ || position.empty()) return;
    try {
      train_->seek(data::Position::from_integers(position));
    } catch (const UserError& error) {
      throw told_of("--data", error);
    }
    given_ = step;
  }
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

  VitFlags flags_;
  Mesh mesh_;
  mutable std::optional<data::Batches> train_;
  mutable std::int64_t given_ = 0;  // the number of batches taken from train_
  mutable Batch data_;
  std::optional<data::Dataset> validation_, test_;
  std::int64_t num_train_ = 0, steps_per_epoch_ = 0;
  nlohmann::json epochs_ = nlohmann::json::array();
  std::int64_t first_epoch_ = 1;  // the number of the first of epochs_
};

void add_vit_flags(Command& command, VitFlags& flags) {
  auto size = [&](const char* name, std::int64_t& value, const char* text) {
    add_whole_number(command, value, {.name = name, .text = text});
  };
  size("--layers", flags.model.layers, "encoder blocks");
  size("--embed", flags.model.embed, "width of the model");
  size("--mlp-dim", flags.model.mlp_dim, "width of the hidden layer of a block");
  size("--heads", flags.model.heads, "attention heads; their number must divide --embed");
  size("--patch", flags.model.patch, "height and width of a patch");
  add_probability(command, flags.model.dropout, "--dropout", "fraction of elements to drop");
  add_path(command, flags.data, "--data",
           "a folder with the files of CIFAR-10, in their binary or Python layout", "cifar-10");
  add_whole_number(command, flags.epochs,
                   {.name = "--epochs", .text = "passes over the training images"})
      ->excludes(command.option("--steps"));
  command.add_flag("--no-flip", flags.no_flip, "do not mirror training images at random")
      ->disable_flag_override();
  command
      .add_flag("--pos-embed", flags.model.has_positions, "add a learned embedding of positions")
      ->disable_flag_override();
  add_choice(command, flags.model.init, "--init", {"xavier", "lecun"},
             "draw kernels from a uniform (xavier) or a normal (lecun) distribution");
}

}  // namespace

std::shared_ptr<void> add_vit_flags(Command& command) {
  auto flags = std::make_shared<VitFlags>();
  add_train_flags(command, *flags);
  add_vit_flags(command, *flags);
  return flags;
}

void add_vit(const ModelCommands& commands) {
  add_job<VitJob>(commands, vit_info(), add_vit_flags);
}

}  // namespace tessera::cli
