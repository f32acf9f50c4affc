#include "run/transport/mpi/launcher.h"

#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>

#include <tessera/error.h>

namespace tessera::run {

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Which variables hold the rank, and the MPI whose launcher sets them.
struct Known {
  const char* rank;
  const char* module;
  bool ends_others = false;
};
constexpr Known kKnown[] = {
    {"OMPI_COMM_WORLD_RANK", "openmpi", true},  // mpirun of Open MPI
    {"PMIX_RANK", "openmpi"},                   // srun --mpi=pmix
    {"PMI_RANK", "mpich"},                      // mpiexec of MPICH, srun --mpi=pmi2
};

std::string file_of(const Launch& launch) {
  if (launch.module.find('/') != std::string::npos) return launch.module;
  return "libtessera_mpi_" + launch.module + ".so";
}

}  // namespace

std::optional<Launch> find_launch() {
  const std::string wanted = variable("TESSERA_MPI");
  if (wanted == "none") return std::nullopt;
  for (const Known& known : kKnown) {
    const std::string rank = variable(known.rank);
    if (rank.empty()) continue;
    return Launch{.rank = std::atoi(rank.c_str()),
                  .module = wanted.empty() ? known.module : wanted,
                  .ends_others = known.ends_others};
  }
  if (wanted.empty()) return std::nullopt;
  return Launch{.rank = 0, .module = wanted};
}

const TesseraMpi& load_mpi(const Launch& launch, const Span& where) {
  const std::string file = file_of(launch);
  // The plugins of an MPI library look for its symbols among the global ones.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw UserError(
        {.what =
             "an MPI launcher started this process, but the module for its MPI cannot be loaded",
         .where = where,
         .found = reason == nullptr ? file : reason,
         .wanted = file + ", which is built with Tessera where this MPI is installed",
         .cure =
             "install the MPI (Debian: libopenmpi-dev or libmpich-dev) and build Tessera again, "
             "or set TESSERA_MPI to openmpi, mpich or the path of a module; TESSERA_MPI=none "
             "ignores the launcher"});
  }
  void* symbol = dlsym(library, "tessera_mpi");
  const TesseraMpi* mpi =
      symbol == nullptr ? nullptr : reinterpret_cast<TesseraMpiSymbol*>(symbol)();
  if (mpi == nullptr || mpi->version != kTesseraMpiVersion) {
    throw UserError(
        {.what = "the MPI module was not built with this version of Tessera",
         .where = where,
         .found = file,
         .wanted = fmt::format("a module with interface version {}", int{kTesseraMpiVersion}),
         .cure = "build and install Tessera again"});
  }
  return *mpi;
}

}  // namespace tessera::run
