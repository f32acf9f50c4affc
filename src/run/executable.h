// What the compiler hands to the engine: tasks over buffers, with all decisions made.
//
// A task is one instruction applied to one distinct tile: the engine computes each tile once and
// every virtual device that holds it reads the same bytes. Tasks wait for tasks, never threads for
// threads, so any number of devices runs on any number of threads. Nothing here knows the IR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <tessera/types.h>

namespace tessera::run {

/// Aligned memory of one tile, shared by the arrays that hold it.
class Buffer {
 public:
  /// Throws RuntimeFault when the machine has no memory left.
  explicit Buffer(std::int64_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  std::byte* data_;
  std::int64_t size_;
};
using BufferPtr = std::shared_ptr<Buffer>;
/// The distinct tiles of one array, in the order of Layout.
using Tiles = std::vector<BufferPtr>;

/// Work on the buffers of one task. Parts are independent and never change bits.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int num_parts() const { return 1; }
  virtual void run(std::span<std::byte* const> buffers, int part) const = 0;
};

/// Where the bytes of a task's buffer are found.
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
};

struct Task {
  std::shared_ptr<const Kernel> kernel;
  std::uint32_t instruction = 0;
  std::vector<std::uint32_t> places;
  std::vector<std::uint32_t> successors;
  std::uint32_t num_predecessors = 0;
};

/// Whether dead ranges of the arena are filled with NaN bytes: in builds with a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsPoisoned = true;
#else
inline constexpr bool kIsPoisoned = false;
#endif

/// Bytes of the arena that nobody reads once these tasks, each named once, have ended.
struct DeadRange {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::vector<std::uint32_t> users;
};

/// One input or output of an executable.
struct Port {
  std::vector<std::int64_t> tile_bytes;
  bool is_donated = false;  // inputs: the caller gives the buffers away
  int alias = -1;           // outputs: the donated input whose buffers it takes
};

struct Executable {
  std::vector<Instruction> instructions;
  std::vector<Task> tasks;
  std::vector<Place> places;
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  std::vector<DeadRange> dead_ranges;  // poisoned as they die; empty unless kIsPoisoned
  std::int64_t arena_bytes = 0;
  std::int64_t device_peak_bytes = 0;  // what one real device would hold, arguments included
};

}  // namespace tessera::run
