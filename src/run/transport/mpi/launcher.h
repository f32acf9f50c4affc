// How a launcher such as mpirun has started this process, and the module for its MPI.
#pragma once

#include <optional>
#include <string>

#include <tessera/types.h>

#include "run/transport/mpi/table.h"

namespace tessera::run {

struct Launch {
  int rank = 0;        // as the launcher says; 0 if it does not say
  std::string module;  // "openmpi", "mpich", or the path of a module
  /// The launcher ends the other processes when one ends, also before MPI_Init.
  bool ends_others = false;
};

/// Read from the environment variables that launchers set. Empty: this process was started alone,
/// or the variable TESSERA_MPI is "none". TESSERA_MPI may also name the module.
std::optional<Launch> find_launch();

/// Loads the module of the launch; throws UserError. Modules are looked for where the dynamic
/// linker looks: the run path of the program, LD_LIBRARY_PATH and the folders of the system.
const TesseraMpi& load_mpi(const Launch& launch, const Span& where);

}  // namespace tessera::run
