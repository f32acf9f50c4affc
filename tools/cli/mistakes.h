// What is wrong with a command line, in the form of the library's errors.
#pragma once

#include <CLI/CLI.hpp>

#include <tessera/error.h>

namespace tessera::cli {

/// The mistake in the arguments that made `app` throw `error`.
UserError mistake_of(const CLI::App& app, const CLI::ParseError& error, int argc,
                     const char* const* argv);

/// Prints what an error asks for that is none: --help or --version. Returns the exit code.
int print_help(const CLI::App& app, const CLI::ParseError& error);

}  // namespace tessera::cli
