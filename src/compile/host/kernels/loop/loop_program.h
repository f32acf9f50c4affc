// Loops over few values. All rounds run in one call, because a round of such a loop takes less time
// than the call of a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <tessera/types.h>

#include "compile/host/kernels/tile/tile_program.h"

namespace tessera::kernels {

/// Computes registers from registers. The elements of a register are adjacent in memory.
class LoopCall {
 public:
  virtual ~LoopCall() = default;
  /// The size of the scratch memory that a call needs.
  virtual std::int64_t scratch_bytes() const = 0;
  /// `registers` are the inputs, then the outputs. Several threads may call it at the same time,
  /// each with its own scratch memory.
  virtual void run(std::span<std::byte* const> registers, std::byte* scratch) const = 0;
};

/// One round computes the registers that its steps name and then gives the carries their next
/// values. Each register that is no carry is written once, before it is read.
struct LoopProgram {
  struct Register {
    DType dtype;
    std::int64_t size;
    /// The register is a part of a buffer that a load or a carry names. Only parts and calls read
    /// it.
    bool is_in_place = false;
  };
  /// An element of a register.
  struct Element {
    int reg;
    std::int64_t index;
    friend bool operator==(const Element&, const Element&) = default;
  };
  using Elements = std::vector<Element>;

  struct Constant {
    int reg;
    std::vector<std::byte> bytes;  // of all elements
  };
  /// Fills a register from a buffer. In round i of the buffer's order it reads the elements from
  /// element i * stride on; with stride 0 it reads them once, before the first round.
  struct Load {
    int reg;
    int buffer;
    std::int64_t stride;  // in elements
  };
  /// A part of an array, at a place that other registers give.
  struct Part {
    int array;
    int part;
    bool is_written;                    // the part is written to the array; false: it is read
    std::vector<std::int64_t> extents;  // of the array
    std::vector<std::int64_t> sizes;    // of the part, per dimension of the array
    std::vector<int> starts;            // per dimension: a register of one i32, or -1 for 0
    /// If empty, starts are moved so that the part lies in the array. Otherwise, a part that does
    /// not lie in the array is read as this element, repeated, and is not written.
    std::vector<std::byte> outside;
  };
  /// Has a kernel, a call, a part, or the elements of its only output.
  struct Step {
    const TileKernel* kernel = nullptr;
    std::shared_ptr<const LoopCall> call = nullptr;
    std::shared_ptr<const Part> part = nullptr;
    /// Registers. Those of a kernel may have one element that stands for all.
    std::vector<int> inputs = {};
    Elements elements = {};
    std::vector<int> outputs = {};  // one; a call may have several, a written part has none
    /// The numbers of steps that must run before this one, because they read what it overwrites or
    /// the other way round.
    std::vector<std::size_t> after = {};

    int output() const { return outputs[0]; }
  };
  struct Store {
    Elements elements;
    int buffer;
    std::int64_t stride;  // in elements
  };
  /// A register that keeps its value from round to round. It starts as the elements of `from`, and
  /// `to` gets its last value. A register that is in place is `to` itself: the steps change it, and
  /// it has no next value.
  struct Carry {
    int reg;
    int from;
    int to;
    Elements next;
  };

  std::vector<Register> registers;
  std::vector<Constant> constants;
  std::vector<Load> loads;
  std::vector<Carry> carries;
  std::vector<Step> body;
  std::vector<Store> stores;
  /// The number of rounds if there is no condition.
  std::int64_t length = 0;
  bool is_reverse = false;  // the buffers are read and written from the last round to the first
  /// With `decision`, a register of one bool, rounds are computed while it is true. Before each
  /// round the steps of the condition compute it from carries and from what is the same in all
  /// rounds.
  std::vector<Step> condition;
  int decision = -1;
};

/// How to run a program. Several threads may run it at the same time.
class LoopPlan {
 public:
  enum class Form : std::uint8_t { interpreted, fastest };
  explicit LoopPlan(LoopProgram program, Form form = Form::fastest);
  ~LoopPlan();
  /// `buffers` are indexed by the buffer numbers of the program. The `to` of a carry may be the
  /// same memory as its `from`, and the buffer of a store the same as that of a load with the same
  /// stride.
  void run(std::span<std::byte* const> buffers) const;
  const LoopProgram& program() const;
  /// Whether it runs as machine code, see code/loop_code.h.
  bool is_machine_code() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::kernels
