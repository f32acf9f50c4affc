// The commands of the command line. A model adds `tessera train MODEL`, `tessera show MODEL` and
// `tessera plan MODEL`, and `tessera generate MODEL` if it continues texts.
#pragma once

#include <memory>

#include "tools/cli/command.h"

namespace tessera::cli {

/// The commands that have one subcommand for each model.
struct ModelCommands {
  Command& train;
  Command& show;
  Command& plan;
  Command& generate;
};
void add_gpt2(const ModelCommands& commands);
void add_lm(const ModelCommands& commands);
void add_mlp(const ModelCommands& commands);
void add_pipeline(const ModelCommands& commands);
void add_vit(const ModelCommands& commands);

/// Adds the flags of `tessera train vit` to a command that starts it. Keep the returned pointer as
/// long as the command: it owns the values.
std::shared_ptr<void> add_vit_flags(Command& command);

/// `tessera checkpoint`.
void add_checkpoint(Command& app);
/// `tessera data`.
void add_data(Command& app);
/// `tessera devices`.
void add_devices(Command& app);
/// `tessera experiments`.
void add_experiments(Command& app);
/// `tessera import`.
void add_import(Command& app);
/// `tessera plot`.
void add_plot(Command& app);
/// `tessera reshard`.
void add_reshard(Command& app);
/// `tessera run`.
void add_run(Command& app);
/// `tessera schedule`.
void add_schedule(Command& app);

}  // namespace tessera::cli
