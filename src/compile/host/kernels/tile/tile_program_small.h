// Tile programs whose elements all fit into one block of a chain.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "compile/host/kernels/tile/tile_program_plan.h"

namespace tessera::kernels::tiles {

/// Runs a plan that has a single small tile. Its registers have memory of their own, so that all
/// addresses but those of the buffers are known beforehand: a run copies the elements of the loads,
/// computes, and copies the stores.
class SmallProgram {
 public:
  /// nullptr if the plan is too large, or sums columns. `plan` must outlive the result.
  static std::unique_ptr<SmallProgram> make(const Plan& plan);

  /// Returns false, and does nothing, if another thread is running it.
  bool try_run(std::span<std::byte* const> buffers);

 private:
  class Builder;

  struct alignas(64) Line {
    std::byte bytes[64];
  };

  /// The memory of a register.
  struct Home {
    std::byte* data = nullptr;
    std::size_t element_bytes = 0;
    bool is_scalar = false;  // one element for the whole tile
    bool is_block = false;   // the element of a scalar is repeated for those who read a block
  };

  /// Elements that are copied between a buffer and a register.
  struct Transfer {
    int buffer;
    std::int64_t offset;                  // in bytes
    std::size_t count;                    // of elements
    std::vector<std::int64_t> positions;  // in elements, one for each; empty: they are adjacent
    Home home;
  };

  struct Work {
    Kind kind;
    std::size_t source = 0;  // as in Instruction
    const Stage* stages = nullptr;
    TileInput inputs[3] = {};
    Home output = {};
  };

  explicit SmallProgram(const Plan& plan) : plan_(plan) {}
  void run(std::span<std::byte* const> buffers) const;
  void load(const Transfer& from, std::span<std::byte* const> buffers) const;
  void store(const Transfer& to, std::span<std::byte* const> buffers) const;
  void step(const Work& work) const;
  void draw(const Work& work, std::span<std::byte* const> buffers) const;
  /// Repeats the element of a scalar where that is needed.
  void spread(const Home& home) const;

  const Plan& plan_;
  Tile tile_ = {};
  std::vector<Transfer> loads_;
  std::vector<Work> work_;
  std::vector<Transfer> stores_;
  std::vector<Stage> stages_;
  std::vector<std::unique_ptr<Line[]>> memory_;
  std::atomic_flag is_running_;
};

}  // namespace tessera::kernels::tiles
