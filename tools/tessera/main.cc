// The command line: `tessera train MODEL ...`, `tessera generate MODEL ...`,
// `tessera show MODEL ...`, `tessera plan MODEL ...`, `tessera experiments ...`,
// `tessera import ...`, `tessera plot ...`, `tessera data ...`, `tessera checkpoint ...`,
// `tessera devices`, `tessera reshard ...`, `tessera run ...`, `tessera schedule ...`.

#include "commands.h"
#include "tools/cli/command.h"
#include "tools/cli/run_main.h"
#include "tools/cli/version.h"

namespace {

int run(int argc, char** argv) {
  tessera::cli::Command app("Trains neural networks in parallel over a mesh of devices.",
                            "tessera");
  app.require_subcommand(1);
  app.set_version(std::string("tessera ") + tessera::cli::version());
  tessera::cli::Command* train = app.add_subcommand("train", "train a model");
  train->require_subcommand(1);
  tessera::cli::Command* generate = app.add_subcommand("generate", "continue a text");
  generate->require_subcommand(1);
  tessera::cli::Command* show = app.add_subcommand("show", "show how a training step is compiled");
  show->require_subcommand(1);
  tessera::cli::Command* plan = app.add_subcommand("plan", "simulate a training step on a cluster");
  plan->require_subcommand(1);
  const tessera::cli::ModelCommands models = {*train, *show, *plan, *generate};
  tessera::cli::add_gpt2(models);
  tessera::cli::add_lm(models);
  tessera::cli::add_mlp(models);
  tessera::cli::add_pipeline(models);
  tessera::cli::add_vit(models);
  tessera::cli::add_data(app);
  tessera::cli::add_checkpoint(app);
  tessera::cli::add_devices(app);
  tessera::cli::add_experiments(app);
  tessera::cli::add_import(app);
  tessera::cli::add_plot(app);
  tessera::cli::add_reshard(app);
  tessera::cli::add_run(app);
  tessera::cli::add_schedule(app);
  return app.parse(argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return tessera::cli::run_main("tessera", run, argc, argv); }
