// The command line: `tessera train MODEL ...`. Exit codes: 0 done, 1 user error, 2 run-time fault,
// 3 internal error.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>
#include <system_error>

#include <tessera/error.h>

#include "commands.h"
#include "mistakes.h"

namespace {

int fail(int code, const char* kind, const std::string& text) {
  std::fprintf(stderr, "tessera: %s%s\n", kind, text.c_str());
  return code;
}

int run(int argc, char** argv) {
  CLI::App app("Trains neural networks in parallel over a mesh of devices.", "tessera");
  app.require_subcommand(1);
  CLI::App* train = app.add_subcommand("train", "train a model");
  train->require_subcommand(1);
  tessera::cli::add_train_lm(*train);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    throw tessera::cli::mistake_of(app, error, argc, argv);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const tessera::UserError& error) {
    return fail(1, "", error.what());
  } catch (const tessera::RuntimeFault& fault) {
    return fail(2, "fault: ", fault.what());
  } catch (const std::bad_alloc&) {
    return fail(2, "fault: ", "out of memory; use a smaller batch or a smaller model");
  } catch (const std::system_error& fault) {
    return fail(2, "fault: ", fault.what());
  } catch (const std::exception& error) {
    return fail(3, "", error.what());
  }
}
