// A link over MPI.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "run/transport/link.h"
#include "run/transport/mpi/table.h"

namespace tessera::run {

/// Where a process runs, as told by itself.
struct ProcessPlace {
  std::uint64_t host = 0;   // equal for processes that see each other's process ids
  std::uint64_t cores = 0;  // equal for processes that may use the same cores
  std::int64_t pid = 0;
};

class MpiLink : public Link {
 public:
  /// For each rank.
  virtual const std::vector<ProcessPlace>& places() const = 0;
  /// Ends the use of MPI, together with all other processes.
  virtual void finish() = 0;
};

/// Starts MPI, together with all other processes. Throws RuntimeFault.
std::unique_ptr<MpiLink> make_mpi_link(const TesseraMpi& mpi);

}  // namespace tessera::run
