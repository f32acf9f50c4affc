// The commands of the command line. A model adds `tessera train MODEL` and `tessera show MODEL`.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_lm(CLI::App& train, CLI::App& show);
void add_mlp(CLI::App& train, CLI::App& show);
void add_pipeline(CLI::App& train, CLI::App& show);
void add_vit(CLI::App& train, CLI::App& show);

/// `tessera checkpoint`.
void add_checkpoint(CLI::App& app);
/// `tessera data`.
void add_data(CLI::App& app);
/// `tessera reshard`.
void add_reshard(CLI::App& app);
/// `tessera schedule`.
void add_schedule(CLI::App& app);

}  // namespace tessera::cli
