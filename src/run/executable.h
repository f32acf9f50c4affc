// What the compiler hands to the engine: tasks over buffers, with all decisions made.
//
// A task is one instruction applied to one distinct tile: the engine computes each tile once and
// every virtual device that holds it reads the same bytes. Tasks wait for tasks, never threads for
// threads, so any number of devices runs on any number of threads. Nothing here knows the IR.
//
// A control task runs nested executables: their ports and arenas lie in the buffers of the task.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <tessera/types.h>

#include "base/sanitized.h"

namespace tessera::ir {
struct Function;
}

namespace tessera::run {

/// One tile in the memory of an accelerator's devices.
class DeviceCopies {
 public:
  virtual ~DeviceCopies() = default;
  /// Waits until the tile is computed. Throws RuntimeFault if the program that computes it has
  /// failed.
  virtual void wait() const = 0;
  /// Waits until the tile is computed, and copies it to the host. Throws RuntimeFault if the
  /// program that computes it has failed.
  virtual void read(std::span<std::byte> to) const = 0;
};

/// Memory of one tile, aligned to 64 bytes and shared by the arrays that hold it. A tile that a
/// device of an accelerator has computed has no memory here until it is read.
class Buffer {
 public:
  enum class Use : std::uint8_t { array, arena };

  /// Allocates `bytes` bytes, which are not initialized. Throws RuntimeFault if there is not enough
  /// memory.
  explicit Buffer(std::int64_t bytes, Use use = Use::array);
  Buffer(std::int64_t bytes, std::shared_ptr<const DeviceCopies> copies);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  /// For a tile that only devices hold, the first call copies it here and may throw RuntimeFault.
  std::byte* data() {
    std::byte* data = data_.load(std::memory_order_acquire);
    return data != nullptr ? data : fetch();
  }
  std::int64_t size() const { return size_; }
  /// Waits until the devices have computed the tile; it may throw RuntimeFault.
  void wait() const;

  /// nullptr if no device has this tile.
  std::shared_ptr<const DeviceCopies> copies() const;
  /// Must be set to nullptr before the memory is overwritten.
  void set_copies(std::shared_ptr<const DeviceCopies> copies);

  /// The peak of the bytes held by all buffers of this process, since the last reset.
  static std::int64_t peak_bytes();
  static void reset_peak_bytes();

 private:
  std::byte* make_memory();
  std::byte* fetch();

  std::atomic<std::byte*> data_ = nullptr;
  std::int64_t size_;
  Use use_;
  mutable std::mutex mutex_;  // for copies_, and for the first use of data_
  std::shared_ptr<const DeviceCopies> copies_;
};
using BufferPtr = std::shared_ptr<Buffer>;
/// The distinct tiles of one array, in the order of Layout.
using Tiles = std::vector<BufferPtr>;

/// The code of a task. Its parts are independent, and their number does not change the result bits.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int num_parts() const { return 1; }
  /// Floating point operations of all parts if the kernel is compute-bound; else 0.
  virtual std::int64_t flops() const { return 0; }
  /// A lower bound of its duration in nanoseconds, where FLOPs and bytes do not show it; the
  /// largest number if it is unknown.
  virtual std::int64_t least_ns() const { return 0; }
  /// Bytes of scratch memory that a thread needs to run a part.
  virtual std::int64_t scratch_bytes() const { return 0; }
  virtual void run(std::span<std::byte* const> buffers, int part) const = 0;
  /// Whether join_parts() must be called, once, after all parts have ended.
  virtual bool joins_parts() const { return false; }
  virtual void join_parts(std::span<std::byte* const> /*buffers*/) const {}
  /// Runs and joins all parts on this thread.
  void run_all(std::span<std::byte* const> buffers) const {
    const int count = num_parts();
    for (int part = 0; part < count; ++part) run(buffers, part);
    if (count > 0 && joins_parts()) join_parts(buffers);
  }
};

/// Where a buffer of a task is found.
struct Place {
  enum class Space : std::uint8_t { arena, input, output };
  Space space = Space::arena;
  std::uint32_t port = 0;   // input or output number
  std::uint32_t tile = 0;   // tile of that port
  std::int64_t offset = 0;  // bytes from the start of the arena or tile
};

struct CollectiveUse {
  std::string kind;             // all_reduce, ...
  std::int64_t bytes = 0;       // whole gathered or reduced array, per device
  std::int64_t wire_bytes = 0;  // ring model
};

struct Instruction {
  std::string name;
  Span span;
  std::vector<CollectiveUse> collectives;  // counted once per execution of the instruction
  std::int64_t flops = 0;                  // of all its tasks
  std::int64_t bytes = 0;                  // of the tiles that its tasks read and write
  // In programs of several groups of devices; -1: none.
  int group = -1;  // group that runs it
  int stage = -1;
  int microbatch = -1;
  bool is_task = false;  // a task of the group, which the timeline shows
  /// What it computes: equations of Executable::source, in their order.
  std::vector<std::uint32_t> equations = {};
};

struct Executable;
class Transport;

/// Which buffers of the control task hold a tile of a nested port. A carry alternates between two
/// buffers, because each step reads what the previous one has returned. Both buffers are the same
/// if a step updates in place.
struct TileBinding {
  std::uint32_t even = 0;  // buffer number at even steps
  std::uint32_t odd = 0;
  std::int64_t stride = 0;  // bytes per slice, for arrays that are scanned or stacked
};

/// Which buffers of a task hold the arena and the ports of a nested executable.
struct Binding {
  std::uint32_t arena = 0;
  std::vector<std::vector<TileBinding>> inputs;   // per port and tile
  std::vector<std::vector<TileBinding>> outputs;  // per port and tile
};

struct Nested {
  std::shared_ptr<const Executable> executable;  // nullptr: there is nothing to do
  Binding binding;
};

/// What a control task does instead of running a kernel.
struct Control {
  enum class Kind : std::uint8_t {
    scan,        // body `length` times
    while_loop,  // condition and body in turn while the condition's bool is true
    cond,        // the body that the i32 selects, clamped to the valid range
  };
  Kind kind;
  std::int64_t length = 0;     // scan
  bool is_reverse = false;     // scan: slices from the last to the first
  std::uint32_t decision = 0;  // while: buffer of the bool; cond: buffer of the i32
  Nested begin;                // loops: copies the initial carry to where the first step reads it
  Nested condition;            // while
  std::vector<Nested> bodies;
  Nested end;  // while: copies the carry to the results after an odd number of steps
};

/// A tile of a value of Executable::source.
struct SourceTile {
  std::uint32_t value = 0;
  std::int64_t tile = 0;
};

/// Has either a kernel or a control.
struct Task {
  std::shared_ptr<const Kernel> kernel;
  std::shared_ptr<const Control> control = nullptr;
  std::uint32_t instruction = 0;
  std::vector<std::uint32_t> places;
  std::vector<std::uint32_t> successors;
  std::uint32_t num_predecessors = 0;
  /// Estimated nanoseconds from the start of this task to the end of the executable, along the
  /// longest path of tasks. Among the tasks that can run, the one with the highest level goes first
  /// (Adam, Chandy, Dickson 1974).
  std::int64_t level = 0;
  std::vector<SourceTile> written = {};  // tiles that it writes; their devices need the task
  /// Whether the kernel exchanges data with other processes, and waits for them. Only one such task
  /// runs at a time, alongside those that compute.
  bool communicates = false;
};

/// Bytes that one real device holds from position `first` to `last`; arguments and results are
/// always held. Positions count instructions or, in a program of several groups, equations of the
/// source.
struct HeldBytes {
  static constexpr std::uint32_t kScratch = ~std::uint32_t{0};
  std::uint32_t value = kScratch;  // of the source
  std::int64_t bytes = 0;
  std::size_t first = 0;
  std::size_t last = 0;
  int group = 0;         // of devices
  bool is_port = false;  // an argument or a result
};

/// Whether dead ranges of the arena are filled with NaN bytes: in builds with a sanitizer.
inline constexpr bool kIsPoisoned = kIsSanitized;

/// A range of the arena that is not read after all of `users` have ended. Each task is listed once.
struct DeadRange {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::vector<std::uint32_t> users;
};

/// One input or output of an executable.
struct Port {
  std::vector<std::int64_t> tile_bytes;
  bool is_donated = false;  // inputs: the caller gives the buffers away
  int alias = -1;           // outputs: the donated input whose buffers it takes, or -1
};

struct Executable {
  std::vector<Instruction> instructions;
  std::vector<Task> tasks;
  std::vector<Place> places;
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  std::vector<DeadRange> dead_ranges;  // empty unless kIsPoisoned
  std::int64_t arena_bytes = 0;
  std::int64_t device_peak_bytes = 0;   // the most that one real device would hold, with arguments
  std::int64_t device_arena_bytes = 0;  // the part of it that is not an argument or result
  bool communicates = false;            // some task exchanges data with other processes
  /// Whether the kernels take less time than sharing their work with other threads would. There are
  /// no control tasks, and no task depends on a later one.
  bool is_short = false;
  /// The same for the body of a loop, for which threads are already awake. Its instructions have no
  /// collectives, so nothing has to be counted. Its control tasks run short bodies, a known number
  /// of times.
  bool is_short_body = false;
  /// Per group of devices, the most that one of its devices would hold; empty if there are no
  /// groups. In a process of one device, only the entry of its own group is not 0.
  std::vector<std::int64_t> group_peak_bytes;
  std::int64_t num_bodies = 0;  // different executables nested in this one
  std::vector<HeldBytes> held;  // their peak is device_peak_bytes
  /// The partitioned function that was lowered. Only tools that show programs use it.
  std::shared_ptr<const ir::Function> source;
  std::shared_ptr<Transport> transport;  // to the own group; nullptr if no task needs it

  bool has_collectives() const {
    for (const Instruction& instruction : instructions) {
      if (!instruction.collectives.empty()) return true;
    }
    return false;
  }
};

}  // namespace tessera::run
