// The commands of the command line. A model adds `tessera train MODEL` and `tessera show MODEL`.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace tessera::cli {

void add_lm(CLI::App& train, CLI::App& show);
void add_mlp(CLI::App& train, CLI::App& show);
void add_pipeline(CLI::App& train, CLI::App& show);
void add_vit(CLI::App& train, CLI::App& show);

/// The flags of `tessera train vit`, for commands that start it; they live as long as what this
/// returns.
std::shared_ptr<void> add_vit_flags(CLI::App& command);

/// `tessera checkpoint`.
void add_checkpoint(CLI::App& app);
/// `tessera data`.
void add_data(CLI::App& app);
/// `tessera devices`.
void add_devices(CLI::App& app);
/// `tessera experiments`.
void add_experiments(CLI::App& app);
/// `tessera plot`.
void add_plot(CLI::App& app);
/// `tessera reshard`.
void add_reshard(CLI::App& app);
/// `tessera schedule`.
void add_schedule(CLI::App& app);

}  // namespace tessera::cli
