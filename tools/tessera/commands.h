// The models of the command line: each adds `tessera train MODEL` and `tessera show MODEL`.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_lm(CLI::App& train, CLI::App& show);
void add_mlp(CLI::App& train, CLI::App& show);
void add_pipeline(CLI::App& train, CLI::App& show);
void add_vit(CLI::App& train, CLI::App& show);

}  // namespace tessera::cli
