// The engine of this process, its settings and counters, and what is known of a program before it
// runs on it. Results never depend on threads.
//
//   auto step = jit(train_step, {.passes = {.observe = [](const PassReport& pass) { ... }}});
//   auto lowered = step.lower(state, batch);             // traced and split over the mesh
//   lowered.partitioned_ir(), lowered.arguments(), lowered.explain()
//   lowered.compile().memory().peak                      // bytes of one device
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/mesh.h>
#include <tessera/schedule.h>
#include <tessera/types.h>

namespace tessera {

namespace ir {
struct PassEvent;
}
namespace detail {
struct Program;
}  // namespace detail

// --- settings and counters

/// Executed collectives of one kind.
struct CollectiveUse {
  std::string kind;
  std::int64_t count = 0;
  std::int64_t bytes = 0;       // of the whole gathered or reduced arrays
  std::int64_t wire_bytes = 0;  // per device, ring model
  friend bool operator==(const CollectiveUse&, const CollectiveUse&) = default;
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

/// Executed since the last reset, sorted by kind. With one process per device: by device 0 of all
/// groups; where there are several groups all processes make this call together.
std::vector<CollectiveUse> collective_counts();
void reset_collective_counts();
/// The most bytes of arrays and temporaries that this process held at one time since the last
/// reset.
std::int64_t peak_buffer_bytes();
void reset_peak_buffer_bytes();

/// Bytes that all processes of this machine may take together, and those that are free; a container
/// has what its control groups leave of them.
struct MachineMemory {
  std::int64_t total = 0;
  std::int64_t free = 0;
};
MachineMemory machine_memory();
/// Whether programs run that need more memory than is free. They do not, unless it is set: the
/// first call of such a program throws UserError with both figures, before anything is computed or
/// given away. With one process per device the needs of all processes count.
void set_overcommit(bool is_allowed);
bool overcommit();

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
  /// The groups of an MpmdMesh: device d of group g of n devices each is process g * n + d. Arrays
  /// over the mesh of a group are held by the groups that MpmdArray names, others by all of them.
  int num_groups = 1;
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

// --- passes of the compiler

/// A pass that has run; valid while it is observed.
class PassReport {
 public:
  std::string_view name() const;
  double seconds() const;
  /// The program that the pass was given, and what it made of it.
  std::string ir_before() const;
  std::string ir_after() const;

  explicit PassReport(const ir::PassEvent& event) : event_(event) {}

 private:
  const ir::PassEvent& event_;
};

/// A function that is told of every pass.
class PassObserver {
 public:
  PassObserver() = default;
  template <std::invocable<const PassReport&> F>
  PassObserver(F f)  // NOLINT(google-explicit-constructor)
      : call_([](const void* target, const PassReport& pass) {
          (*static_cast<const F*>(target))(pass);
        }),
        target_(std::make_shared<const F>(std::move(f))) {}

  explicit operator bool() const { return call_ != nullptr; }
  void operator()(const PassReport& pass) const { call_(target_.get(), pass); }

 private:
  void (*call_)(const void*, const PassReport&) = nullptr;
  std::shared_ptr<const void> target_;
};

struct PassSettings {
  std::vector<std::string> disabled = {};  // names of optional passes that are left out
  bool verify = false;                     // checks the program after each pass
  PassObserver observe = {};
};

// --- compiled programs

/// An argument or a result: `path` is that of the leaf, `local_shape` what the fullest device
/// holds, `mpmd_idxs` the groups of a pipeline that it lives in.
struct LeafPlacement {
  std::string path;
  Type type;
  NamedSharding sharding;
  Shape local_shape;
  std::vector<std::int64_t> mpmd_idxs = {};
};

/// Bytes that one real device would hold while the program runs.
struct MemoryPlan {
  std::int64_t arguments = 0;
  std::int64_t results = 0;                    // that do not take the memory of a donated argument
  std::int64_t temporaries = 0;                // at their peak
  std::int64_t peak = 0;                       // all of these
  std::vector<std::int64_t> group_peaks = {};  // of a pipeline: for a device of each group
};

/// The leaves as a table: path, type, spec, local shape and bytes of a device, with their total.
std::string sharding_table(const std::vector<LeafPlacement>& leaves);

/// One array that a planned collective moves, and what caused it.
struct PlannedCollective {
  std::string kind;             // "all_gather"
  Type type;                    // of the whole array
  std::int64_t count = 1;       // in one run: the trips of the loops around it
  std::int64_t bytes = 0;       // of the gathered or reduced array, each time
  std::int64_t wire_bytes = 0;  // per device, ring model, each time
  std::int64_t group_size = 1;  // devices that talk to each other
  Span where;                   // the user's line
  std::string because;          // the op that needs it and the argument that was split
  std::string cure;             // "passing argument 1 as P()" would avoid it; empty: not known
};

/// What is known of a function lowered for one kind of arguments.
class LoweredProgram {
 public:
  /// The function as traced and differentiated, and as split over the mesh.
  std::string ir() const;
  std::string partitioned_ir() const;
  /// A table of every collective: kind, bytes, user's line, cause and what would avoid it. With
  /// fast numerics it ends with the bytes that exact ones would send.
  std::string explain() const;
  /// The rows of explain(), in program order; a combined collective has several.
  std::vector<PlannedCollective> planned_collectives() const;
  /// Planned collectives of one run.
  std::vector<CollectiveUse> collectives() const;
  /// Of a pipeline: a line for each task, for each transfer between groups, and for each value that
  /// a group need not hold any longer, in the order of execution. Empty for other programs.
  std::string task_ir() const;
  /// Of a pipeline: what the stages cost, as estimated from flops and bytes: seconds of a core that
  /// does the work of a group, and bytes of a device. No stages for other programs.
  ScheduleCosts stage_costs() const;

  /// Where each leaf of the arguments and of the result lives.
  std::vector<LeafPlacement> arguments() const;
  std::vector<LeafPlacement> results() const;

  explicit LoweredProgram(std::shared_ptr<detail::Program> program);

 protected:
  std::shared_ptr<detail::Program> program_;
};

/// Throws UserError that names the first planned collective of these kinds, of any kind if none is
/// given; unknown kinds as well.
void assert_no_collectives(const LoweredProgram& program,
                           const std::vector<std::string>& kinds = {},
                           std::source_location where = std::source_location::current());

class CompiledProgram : public LoweredProgram {
 public:
  using LoweredProgram::LoweredProgram;
  /// From the call to the first instruction: trace, differentiate, partition, compile.
  double compile_seconds() const;
  /// What one real device would have to hold, arguments included.
  std::int64_t device_peak_bytes() const { return memory().peak; }
  MemoryPlan memory() const;
};

// --- changes of sharding

/// One collective, or a slice, which moves nothing.
struct ReshardStep {
  std::string kind;
  std::vector<std::string> axes;  // along which data moves; `data#1` is a part of an axis
  PartitionSpec spec;             // that it leads to
  std::int64_t wire_bytes = 0;    // received per device, ring model
  std::int64_t group_size = 1;    // devices that talk to each other
};

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  std::int64_t wire_bytes = 0;
  /// No plan is cheaper by more than this factor; 1 for the cheapest one, which is found on all
  /// meshes whose sizes have no more than six prime factors.
  double bound = 1;
  std::int64_t start_cost = 0;  // what starting a collective counts, in bytes
};

/// The collectives that take an array from one sharding to another on the same mesh at the least
/// price: the bytes that a device receives and `start_cost` for each of them. Throws UserError
/// for specs that do not fit the type.
ReshardPlan plan_reshard(const Type& type, const NamedSharding& from, const PartitionSpec& to,
                         std::source_location where = std::source_location::current());

}  // namespace tessera
