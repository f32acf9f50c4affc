// `tessera plot`: draws curves from the JSON reports of runs.

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include <tessera/error.h>

#include "tools/cli/input_file.h"
#include "tools/cli/streams.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/flags.h"
#include "tools/tessera/pictures/chart.h"

namespace tessera::cli {

namespace {

using nlohmann::json;

struct PlotFlags {
  std::vector<std::string> files;
  std::vector<std::string> labels;
  std::string what = "loss";
  std::string out;
};

json report_of(const std::string& path) {
  const std::string text = read_input(
      path, {.what = "plot: the file cannot be read",
             .wanted = "the report of a run, as tessera train MODEL --json FILE writes it",
             .cure = "check the path"});
  json report = json::parse(text, nullptr, false);
  if (report.is_object() && report.contains("losses") && report["losses"].is_array()) return report;
  throw UserError(
      {.what = "plot: the file is not the report of a run",
       .found = path,
       .wanted = "a JSON object with losses, as tessera train MODEL --json FILE writes it",
       .cure = "give the file that --json wrote"});
}

/// The numbers of an array, or those of the member `member` of its objects, times `scale`; x counts
/// from `first`. Leaves out elements that are not numbers, such as a loss that was not finite.
Series numbers_of(const json& list, const char* member, double first, double scale) {
  Series series;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const json& item = member[0] == '\0' ? list[i] : list[i].value(member, json());
    if (!item.is_number()) continue;
    series.x.push_back(first + static_cast<double>(i));
    series.y.push_back(scale * item.get<double>());
  }
  return series;
}

/// The step or epoch with which the curve begins. It is not the first one if the run continued an
/// earlier run.
double first_of(const json& report, const char* name, double otherwise) {
  const json first = report.value(name, json());
  return first.is_number() ? first.get<double>() : otherwise;
}

Series series_of(const PlotFlags& flags, const std::string& path) {
  const json report = report_of(path);
  if (flags.what == "loss") {
    return numbers_of(report["losses"], "", first_of(report, "first_step", 0), 1);
  }
  const bool is_accuracy = flags.what == "accuracy";
  Series series = numbers_of(report.value("epochs", json::array()),
                             is_accuracy ? "validation_accuracy" : "validation_loss",
                             first_of(report, "first_epoch", 1), is_accuracy ? 100 : 1);
  if (!series.y.empty()) return series;
  throw UserError({.what = "plot: the run has no validation",
                   .found = path + " without epochs",
                   .wanted = "a run of at least one epoch",
                   .cure = "train with --data FOLDER --epochs N, or plot --what loss"});
}

void plot(const PlotFlags& flags) {
  const bool is_loss = flags.what == "loss";
  CurveChart chart;
  chart.text = {.title = is_loss ? "training loss"
                                 : "validation " +
                                       std::string(flags.what == "accuracy" ? "accuracy" : "loss"),
                .x_label = is_loss ? "step" : "epoch",
                .y_label = flags.what == "accuracy" ? "% of images" : "nats"};
  for (std::size_t i = 0; i < flags.files.size(); ++i) {
    chart.series.push_back(series_of(flags, flags.files[i]));
    chart.series.back().name = i < flags.labels.size()
                                   ? flags.labels[i]
                                   : std::filesystem::path(flags.files[i]).stem().string();
  }
  draw(chart, "--out", flags.out);
  print("written to " + flags.out + "\n");
}

}  // namespace

void add_plot(Command& app) {
  Command* command = app.add_subcommand("plot", "draw the curves of runs from their --json files");
  auto flags = std::make_shared<PlotFlags>();
  command->add_option("files", flags->files, "reports of runs")->required();
  add_choice(*command, flags->what, "--what", {"loss", "accuracy", "validation-loss"},
             "the loss of each step, or the validation accuracy or loss after each epoch");
  command
      ->add_option(
          "--label", flags->labels,
          "the name of a curve; once for each file, in the same order; default: the file names")
      ->allow_extra_args(false);
  command->add_option("--out", flags->out, "the picture, .png or .svg")->required();
  command->callback([flags] { plot(*flags); });
}

}  // namespace tessera::cli
