// Turns CLI11's errors into UserErrors.
#pragma once

#include <CLI/CLI.hpp>

#include <tessera/error.h>

namespace tessera::cli {

/// The UserError for arguments that made `app` throw `error`.
UserError mistake_of(const CLI::App& app, const CLI::ParseError& error, int argc,
                     const char* const* argv);

/// Whether the arguments begin with a word that is no command, where a command is expected.
bool has_unknown_command(const CLI::App& app, int argc, const char* const* argv);

/// CLI11 throws for --help and --version too: prints the text that such an `error` asks for.
/// Returns the exit code.
int print_help(const CLI::App& app, const CLI::ParseError& error);

}  // namespace tessera::cli
