// Several processes that compute together. Each runs the whole host program and computes the tiles
// of the devices that it owns: a block of consecutive ids, equally many in each process. They share
// nothing but messages. Reading an array that is not
// replicated is a collective, so all processes make the same calls. Results have the same bits as
// in one process for all devices.
//
//   class Training final : public IsolatedProgram { ... };
//   int main() {
//     Training training;
//     return run_launched(training);  // ./training, or mpirun -n 4 ./training
//   }
//
// A process that fails, ends, stops or makes other calls than the others ends the run: the others
// throw RuntimeFault with its rank, the collective, the op and its line. A process that only takes
// long is waited for.
#pragma once

#include <cstdint>
#include <exception>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// What the processes do.
class IsolatedProgram {
 public:
  virtual ~IsolatedProgram() = default;
  virtual void run() = 0;
  /// Called in a process whose run() has thrown: reports the error and returns the exit code.
  virtual int report(const std::exception_ptr& error) = 0;
  /// Called instead if another process reports the cause of this error: returns the exit code.
  virtual int report_again(const std::exception_ptr& error) { return report(error); }
};

/// Options of run_isolated.
struct IsolatedOptions {
  int num_processes = 1;
  double timeout_s = 60;  // how long a process may give no sign of life
  /// The groups of an MpmdMesh: with n processes per group, those of group g have the ranks from
  /// g * n on. Arrays over the mesh of a group are held by the groups that MpmdArray names, others
  /// by all.
  int num_groups = 1;
  /// With several groups: the devices of each. 0: one per process.
  std::int64_t devices_per_group = 0;
};

/// Runs `program` in new processes. Call it before anything is computed. Returns when all have
/// ended: 0, or the exit code of one that failed.
int run_isolated(IsolatedProgram& program, const IsolatedOptions& options,
                 std::source_location where = std::source_location::current());

/// Options of run_launched.
struct LaunchOptions {
  double timeout_s = 60;  // as for run_isolated
  int num_groups = 1;     // as for run_isolated
  std::int64_t devices_per_group = 0;
  /// Names and values that must be the same in all processes, such as flags. Otherwise all throw
  /// UserError, which names a process and what differs. The executables are compared anyway.
  std::vector<std::pair<std::string, std::string>> must_agree = {};
};

/// Whether a launcher (mpirun, mpiexec or srun) has started this process. TESSERA_MPI=none in the
/// environment makes it false.
bool is_launched();
/// Runs `program` in this process, connected by MPI with the others that the launcher has started.
/// Without a launcher it runs alone, for all devices. Returns 0, or the exit code of the error that
/// was reported; after an error of one process all are ended, some without a return from here. If
/// all processes find the same error, one of them reports it.
int run_launched(IsolatedProgram& program, const LaunchOptions& options = {},
                 std::source_location where = std::source_location::current());

/// The rank of this process, and how many there are; 0 and 1 if it runs alone.
int process_index();
int process_count();
/// The values of all processes, by rank.
std::vector<std::int64_t> process_allgather(
    std::int64_t value, std::source_location where = std::source_location::current());
/// The cores for this process: an even share of those that it may use, if others may use them too.
int cores_of_process();

}  // namespace tessera
