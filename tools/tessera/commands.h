// The commands of the command line. A model adds `tessera train MODEL` and `tessera show MODEL`.
#pragma once

#include <memory>

#include "tools/cli/command.h"

namespace tessera::cli {

void add_lm(Command& train, Command& show);
void add_mlp(Command& train, Command& show);
void add_pipeline(Command& train, Command& show);
void add_vit(Command& train, Command& show);

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
/// `tessera plot`.
void add_plot(Command& app);
/// `tessera reshard`.
void add_reshard(Command& app);
/// `tessera schedule`.
void add_schedule(Command& app);

}  // namespace tessera::cli
