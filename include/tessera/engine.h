// The engine of this process, its settings, and what is known about a program before it runs.
// Results never depend on the number of threads.
//
//   auto step = jit(train_step, {.passes = {.observe = [](const PassReport& pass) { ... }}});
//   auto lowered = step.lower(state, batch);             // traced and split over the mesh
//   lowered.partitioned_ir(), lowered.arguments(), lowered.explain()
//   lowered.compile().memory().peak                      // bytes of one device
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/mesh.h>
#include <tessera/profile.h>
#include <tessera/schedule.h>
#include <tessera/types.h>

namespace TESSERA_EXPORT tessera {

namespace detail {
struct ContextState;
struct Program;
}  // namespace detail

// --- settings

/// Options of a new context.
struct ContextOptions {
  /// The number of threads that its programs divide their work for, from 1 to 1024; 0: as in the
  /// current context. With 1, no kernel is divided. Results never depend on it.
  int num_threads = 0;
  /// Whether this process computes alone, for all devices of every mesh, as it does without
  /// run_isolated and mpirun. Calls in the context then never wait for other processes, so one
  /// process may compute something that the others do not. An array may enter or leave the context
  /// only if this process holds all its tiles, as with replicated arrays; otherwise it is a
  /// UserError.
  bool is_alone = false;
};

/// A context holds the settings for engine, dot unit, grains and numerics, the programs that were
/// compiled for eager ops, and what programs are compiled for: the number of threads and the
/// processes. Several threads may compute in different contexts at the same time, and share arrays
/// and jitted functions. All contexts share the compute threads and the memory.
class Context {
 public:
  Context();  // with the settings of the current context
  /// Throws UserError for a number of threads that is out of range.
  explicit Context(const ContextOptions& options,
                   std::source_location where = std::source_location::current());
  ~Context();

 private:
  friend class use_context;
  std::shared_ptr<detail::ContextState> state_;
};

/// Makes a context the current one of this thread until the end of the scope. Threads without a
/// scope all use the same default context.
class [[nodiscard]] use_context {
 public:
  [[nodiscard]] explicit use_context(const Context& context);
  ~use_context();
  use_context(const use_context&) = delete;
  use_context& operator=(const use_context&) = delete;

 private:
  std::shared_ptr<detail::ContextState> previous_;
};

/// Sets the number of compute threads of the process, from 1 to 1024. Several threads of the host
/// program may call jitted functions and ops at the same time; up to this many compiled programs
/// then run at once, and share the compute threads.
void set_num_threads(int count, std::source_location where = std::source_location::current());
/// The number of threads that programs of the current context divide their work for: that of the
/// process, unless the context has its own (ContextOptions).
int num_threads();
/// Whether each thread of the library stays on one NUMA node of a machine that has several; true by
/// default. Threads of the caller are never bound.
void set_thread_binding(bool is_on);
/// The default number of threads: the cores in the affinity mask of the calling thread, but not
/// more than the CPU time that its control groups allow.
int usable_cores();
/// The instruction set that the kernels use, for example AVX2. Results never depend on it.
std::string_view instruction_set();
/// `host`, `reference`, `gpu` or `pjrt:PATH[,OPTION=VALUE]...` (docs/accelerators.md).
void set_engine(std::string_view name,
                std::source_location where = std::source_location::current());
std::string_view engine();
/// Sets the unit that multiplies bf16 arrays; other types are not affected. `portable`: fused
/// multiply-adds of f32, with the same bits on every machine. `avx512_bf16`: vdpbf16ps, which
/// treats subnormal factors and sums as zeros; convolutions take channels in pairs. `amx_bf16`:
/// tdpbf16ps, which adds even and odd terms separately and treats subnormals in the same way.
/// `auto`, the default: the best unit of this machine. Throws UserError for a unit that this
/// process cannot use. A jit may have its own unit (JitOptions::dot_unit).
void set_dot_unit(std::string_view name,
                  std::source_location where = std::source_location::current());
/// The unit in use, never `auto`.
std::string_view dot_unit();
/// Sets the number of grains that a reduced dimension is cut into, from 1 to 4096. It is part of
/// the definition of a sum: another number gives different bits.
void set_grains(std::int64_t grains, std::source_location where = std::source_location::current());
std::int64_t grains();
/// Sets how the engines `host` and `reference` compute sums; the default is exact. Fast numerics
/// send fewer bytes; results then depend on the mesh, but not on the number of threads. A jit may
/// have its own (JitOptions::numerics). A PJRT plugin always computes in device numerics.
void set_numerics(Numerics numerics);
/// The numerics in use; `device` while the engine is a PJRT plugin.
Numerics numerics();

/// Whether a program may run that needs more memory than all processes together have free. If not,
/// the first call of such a program throws UserError with both figures before it computes anything.
void set_overcommit(bool is_allowed);
bool overcommit();

// --- several processes
// Each process runs the whole host program and computes the tiles of the devices that it owns: a
// block of consecutive ids, equally many in each process. Processes share nothing but messages.
// Reading an array that is not replicated is a collective, so all processes must make the same
// calls. Results have the same bits as in a single process for all devices.
//
//   class Training final : public IsolatedProgram { ... };
//   int main() {
//     Training training;
//     return run_launched(training);  // ./training, or mpirun -n 4 ./training
//   }
//
// If a process fails, ends, stops or makes different calls, the run ends: the other processes throw
// RuntimeFault with its rank, the collective, the op and its line. Slow processes are waited for.

class IsolatedProgram {
 public:
  virtual ~IsolatedProgram() = default;
  virtual void run() = 0;  // what the processes do
  /// Called in a process whose run() has thrown. Reports the error and returns the exit code.
  virtual int report(const std::exception_ptr& error) = 0;
  /// Called instead if another process reports the cause of this error. Returns the exit code.
  virtual int report_again(const std::exception_ptr& error) { return report(error); }
};

/// Options of run_isolated.
struct IsolatedOptions {
  int num_processes = 1;
  double timeout_s = 60;  // a process without a heartbeat for so many seconds has failed
  /// The groups of an MpmdMesh. With n processes per group, the ranks of group g begin at g * n.
  /// Arrays over the mesh of a group are held by the groups that MpmdArray names; other arrays are
  /// held by all groups.
  int num_groups = 1;
  std::int64_t devices_per_group = 0;  // with several groups; 0: one per process
};

/// Runs `program` in new processes. Call it before anything is computed. Returns when all of them
/// have ended: 0, or the exit code of a process that failed.
int run_isolated(IsolatedProgram& program, const IsolatedOptions& options,
                 std::source_location where = std::source_location::current());

/// Options of run_launched.
struct LaunchOptions {
  double timeout_s = 60;  // as for run_isolated
  int num_groups = 1;     // as for run_isolated
  std::int64_t devices_per_group = 0;
  /// Names and values that must be the same in all processes, such as flags. If they differ, all
  /// processes throw UserError, which names a process and the difference. The executables are
  /// always compared.
  std::vector<std::pair<std::string, std::string>> must_agree = {};
};

/// Whether a launcher (mpirun, mpiexec or srun) has started this process. TESSERA_MPI=none in the
/// environment makes it false.
bool is_launched();
/// Runs `program` in this process, connected by MPI to the others that the launcher has started.
/// Without a launcher, it runs alone, for all devices. Returns 0, or the exit code of the reported
/// error. An error ends all processes, some of them without returning from this call. If all
/// processes find the same error, one of them reports it.
int run_launched(IsolatedProgram& program, const LaunchOptions& options = {},
                 std::source_location where = std::source_location::current());

/// The rank of this process and the number of processes; 0 and 1 if it runs alone.
int process_index();
int process_count();
/// Gathers a value or text from each process; returns them by rank.
std::vector<std::int64_t> process_allgather(
    std::int64_t value, std::source_location where = std::source_location::current());
std::vector<std::string> process_allgather(
    const std::string& text, std::source_location where = std::source_location::current());
/// The number of cores for this process. If other processes may use the same cores, it is an even
/// share of them.
int cores_of_process();

// --- compiled programs

/// The placement of a leaf of the arguments or of the result.
struct LeafPlacement {
  std::string path;  // of the leaf
  Type type;
  NamedSharding sharding;
  Shape local_shape;  // of the largest tile
};

/// The bytes that one real device would hold while the program runs. In a pipeline: a device of the
/// group that holds most.
struct MemoryPlan {
  std::int64_t arguments = 0;
  std::int64_t results = 0;                    // that do not reuse the memory of a donated argument
  std::int64_t temporaries = 0;                // their peak
  std::int64_t peak = 0;                       // all of these
  std::vector<std::int64_t> group_peaks = {};  // in a pipeline, for a device of each group
};

/// A table of the leaves: path, type, spec, local shape and bytes per device, with the total.
std::string sharding_table(const std::vector<LeafPlacement>& leaves);

/// An array that a planned collective moves, and why.
struct PlannedCollective {
  std::string kind;             // "all_gather"
  Type type;                    // of the whole array
  std::int64_t count = 1;       // executions per run: the iterations of the loops around it
  std::int64_t bytes = 0;       // of the gathered or reduced array, each time
  std::int64_t wire_bytes = 0;  // per device, ring model, each time
  std::int64_t group_size = 1;  // devices that exchange data with each other
  Span where;                   // the user's line
  std::string because;          // the op that needs it and the argument that is split
  std::string cure;             // for example "passing argument 1 as P()"; empty if none is known
};

/// What is known about a function lowered for one kind of arguments.
class LoweredProgram {
 public:
  /// The function after tracing and differentiation; and the same after partitioning over the mesh.
  std::string ir() const;
  std::string partitioned_ir() const;
  /// The partitioned program in StableHLO; throws UserError for what StableHLO cannot express.
  std::string stablehlo() const;
  /// A table of all collectives: kind, bytes, the user's line, the cause, and what would avoid it.
  /// With fast numerics, the last line says how many bytes exact numerics would send.
  std::string explain() const;
  /// The rows of explain(), in program order. A combined collective has several.
  std::vector<PlannedCollective> planned_collectives() const;
  /// The collectives that one run executes.
  std::vector<CollectiveUse> collectives() const;
  /// For a pipeline: a line for each task, each transfer between groups, and each value that a
  /// group no longer needs, in the order of execution. Empty for other programs.
  std::string task_ir() const;
  /// For a pipeline: the costs of its stages, estimated from flops and bytes. Times are seconds of
  /// one core that does the work of a group; memory is in bytes of a device. Other programs have no
  /// stages.
  ScheduleCosts stage_costs() const;

  /// The sharding of each leaf of the arguments and of the result.
  std::vector<LeafPlacement> arguments() const;
  std::vector<LeafPlacement> results() const;

  explicit LoweredProgram(std::shared_ptr<detail::Program> program);

 protected:
  friend StepPlan plan_step(const LoweredProgram&, const Cluster&, std::source_location);
  std::shared_ptr<detail::Program> program_;
};

/// Throws UserError, which names the first one, if the program has a collective of one of these
/// kinds, or of any kind if none are given. Also throws UserError for an unknown kind.
void assert_no_collectives(const LoweredProgram& program,
                           const std::vector<std::string>& kinds = {},
                           std::source_location where = std::source_location::current());

/// A program that is ready to run.
class CompiledProgram : public LoweredProgram {
 public:
  using LoweredProgram::LoweredProgram;
  /// Seconds from the call to the first instruction: trace, differentiate, partition, compile.
  double compile_seconds() const;
  /// The bytes that one real device would have to hold, including arguments.
  std::int64_t device_peak_bytes() const { return memory().peak; }
  MemoryPlan memory() const;
};

}  // namespace tessera
