// `tessera data sample vit`: a picture of the first images that a model is trained on.

#include <cmath>
#include <memory>

#include "tools/cli/streams.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/flags.h"
#include "tools/tessera/pictures/picture.h"
#include "vit/data.h"

namespace tessera::cli {

namespace {

struct SampleFlags {
  std::string data;
  std::string out = "grid.png";
  bool no_flip = false;
};

/// Ten images with their labels, in two rows.
void draw_sample(const SampleFlags& flags) {
  constexpr std::int64_t kImages = 10;
  constexpr std::int64_t kColumns = 5;
  constexpr std::int64_t kSide = 32;
  constexpr double kImage = 192;
  constexpr double kGap = 24;
  constexpr double kLabel = 32;
  constexpr double kLabelFont = 20;
  Picture picture("--out", flags.out, kGap + kColumns * (kImage + kGap),
                  kGap + kImages / kColumns * (kLabel + kImage + kGap));
  const std::source_location nowhere;  // errors name the flags
  const data::Dataset images = vit::training_data(flags.data, !flags.no_flip, nowhere);
  const std::vector<std::string> classes = data::cifar10_classes(flags.data, nowhere);
  for (std::int64_t i = 0; i < kImages; ++i) {
    const data::Record record = images.read(i);
    const auto label = std::get<std::vector<std::int32_t>>(record[1].values)[0];
    const double x = kGap + static_cast<double>(i % kColumns) * (kImage + kGap);
    const double y = kGap + static_cast<double>(i / kColumns) * (kLabel + kImage + kGap);
    const std::string name = classes[static_cast<std::size_t>(label)];
    const std::string number = std::to_string(label);
    picture.text(x + kImage / 2, y + kLabelFont, kLabelFont,
                 "Label: " + number + (name == number ? "" : " (" + name + ")"));
    picture.image(x, y + kLabel, kImage, std::get<std::vector<std::uint8_t>>(record[0].values),
                  kSide);
  }
  picture.write();
  print("written to " + flags.out + "\n");
}

}  // namespace

void add_data(Command& app) {
  Command* data = app.add_subcommand("data", "inspect training data");
  data->require_subcommand(1);
  Command* sample = data->add_subcommand("sample", "draw what a model is trained on");
  sample->require_subcommand(1);
  Command* vit = sample->add_subcommand("vit", "ten images with their labels");
  auto flags = std::make_shared<SampleFlags>();
  vit->add_option("--data", flags->data, "a folder with the files of CIFAR-10")->required();
  vit->add_option("--out", flags->out, "the picture, .png or .svg")->capture_default_str();
  vit->add_flag("--no-flip", flags->no_flip, "do not mirror images at random")
      ->disable_flag_override();
  vit->callback([flags] { draw_sample(*flags); });
}

}  // namespace tessera::cli
