// Settings and counters of the engine of this process. Results never depend on threads.
#pragma once

#include <cstdint>
#include <exception>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/types.h>

namespace tessera {

/// Executed collectives of one kind.
struct CollectiveUse {
  std::string kind;
  std::int64_t count = 0;
  std::int64_t bytes = 0;       // of the whole gathered or reduced arrays
  std::int64_t wire_bytes = 0;  // per device, ring model
  friend bool operator==(const CollectiveUse&, const CollectiveUse&) = default;
};

/// Where the time of the engine went: the tasks of one fused region or kernel.
struct RegionTime {
  std::string name;        // its first ops
  Span where;              // of the first one
  std::int64_t count = 0;  // executions
  double seconds = 0;      // of all threads together
  std::int64_t flops = 0;  // of matrix products; 0 elsewhere
  std::int64_t bytes = 0;  // of the arrays that it read and wrote
};

/// From 1 to 1024.
void set_num_threads(int count, std::source_location where = std::source_location::current());
int num_threads();
/// The instruction set that the kernels run on, for example AVX2. Results never depend on it.
std::string_view instruction_set();
/// `host` or `reference`.
void set_engine(std::string_view name,
                std::source_location where = std::source_location::current());
std::string_view engine();
/// Who multiplies matrices of bf16; products of other types do not depend on it. `portable`: fused
/// multiply adds of f32, the same bits on every machine. `avx512_bf16`: vdpbf16ps, where subnormal
/// factors and sums are zeros; all other bits are those of `portable`. `auto`, until it is set: the
/// best one of this machine. UserError for one that this machine does not have; a jit may have its
/// own (JitOptions::dot_unit).
void set_dot_unit(std::string_view name,
                  std::source_location where = std::source_location::current());
/// The one in use, never `auto`.
std::string_view dot_unit();
/// Leaves of a reduced dimension, from 1 to 4096: part of what a sum means.
void set_grains(std::int64_t grains, std::source_location where = std::source_location::current());
std::int64_t grains();
/// Exact unless set. Fast numerics send fewer bytes, and results depend on the mesh, but not on
/// threads; a jit may have its own (JitOptions::numerics).
void set_numerics(Numerics numerics);
Numerics numerics();

/// Executed since the last reset, sorted by kind.
std::vector<CollectiveUse> collective_counts();
void reset_collective_counts();
/// Times every region from now on.
void start_profile();
/// What was timed since, the longest first.
std::vector<RegionTime> stop_profile();
/// The most bytes of arrays and temporaries that this process held at one time since the last
/// reset.
std::int64_t peak_buffer_bytes();
void reset_peak_buffer_bytes();

// --- one process per device
//
// Every process runs the whole host program on one thread and computes the tile of its device; they
// share a transport and nothing else. Reading an array that is not replicated is a collective, so
// all of them make the same calls. Results have the bits that one process for all devices gives.

/// What the processes do.
class IsolatedProgram {
 public:
  virtual ~IsolatedProgram() = default;
  virtual void run() = 0;
  /// Reports what run() threw, in the process where it did, and returns the code to exit with.
  virtual int report(const std::exception_ptr& error) = 0;
};

struct IsolatedOptions {
  int num_processes = 1;  // the devices of the mesh
  double timeout_s = 60;  // within it a process that is waited for must answer
};

/// Runs `program` in new processes; to be called before anything is computed. Returns when they
/// have ended: 0, or the code of one that failed. When one dies, stops or throws, RuntimeFault in
/// all others names its rank, the collective, the op and its line.
int run_isolated(IsolatedProgram& program, const IsolatedOptions& options,
                 std::source_location where = std::source_location::current());
/// The rank of this process, and how many there are; 0 and 1 without run_isolated().
int process_index();
int process_count();
/// What every process passes, by rank.
std::vector<std::int64_t> process_allgather(
    std::int64_t value, std::source_location where = std::source_location::current());

}  // namespace tessera
