// The subcommands of the command line.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_train_lm(CLI::App& train);
void add_show_lm(CLI::App& show);

}  // namespace tessera::cli
