// Compiles programs with the compiler of an accelerator.
#pragma once

#include <memory>

#include "api/program.h"

namespace tessera::detail {

/// Compiles a partitioned program for the devices of program.engine.backend. Throws UserError for
/// programs that they cannot run.
std::shared_ptr<const run::Runnable> compile_for_backend(const Program& program);

}  // namespace tessera::detail
