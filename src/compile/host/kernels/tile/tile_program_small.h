// Tile programs of few elements.
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
  /// nullptr if the plan is too large. `plan` must outlive the result.
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
    bool is_scalar = false;    // one element for the whole tile
    std::size_t repeated = 0;  // how often memory has the element of a scalar; 0: once
  };

  /// The values of a linear function in the tile: rows that begin at `starts`, or one value.
  struct Lines {
    std::vector<std::int64_t> starts;
    std::int64_t columns;
    std::int64_t stride;
  };

  /// Elements that are copied between a buffer and a register.
  struct Transfer {
    enum class Form : std::uint8_t {
      run,    // adjacent elements
      rows,   // as the lines say
      alike,  // each row is one element of a run, repeated
    };
    Form form;
    int buffer;
    Lines lines;  // in elements
    Home home;

    std::size_t count() const {
      return lines.starts.size() * static_cast<std::size_t>(lines.columns);
    }
    Rows rows() const {
      const auto num_rows = static_cast<std::int64_t>(lines.starts.size());
      return {home.element_bytes, lines.starts.data(), num_rows, lines.columns, lines.stride};
    }
  };

  /// Rows that are added to the columns of a unit of grains.
  struct Range {
    std::int64_t unit;
    std::int64_t row;
    std::vector<ColumnRun> runs;
  };

  struct Work {
    Kind kind;
    std::size_t source = 0;  // as in Instruction
    const Chain* chain = nullptr;
    const Stage* stages = nullptr;
    std::size_t num_blocks = 0;
    TileInput inputs[3] = {};
    Lines lines = {};  // of random bits
    Home output = {};
  };

  explicit SmallProgram(const Plan& plan) : plan_(plan) {}
  void run(std::span<std::byte* const> buffers);
  void load(const Transfer& from, std::span<std::byte* const> buffers) const;
  void store(const Transfer& to, std::span<std::byte* const> buffers) const;
  void step(const Work& work) const;
  void sum_columns(std::span<std::byte* const> buffers);
  void draw(const Work& work, std::span<std::byte* const> buffers) const;
  /// Calls fill(start, stride, where to, how many) for each line.
  template <class Fill>
  void generate(const Lines& lines, const Home& home, const Fill& fill) const;
  /// Repeats the element of a scalar for readers of whole blocks.
  void spread(const Home& home) const;

  const Plan& plan_;
  Tile tile_ = {};
  std::vector<Transfer> loads_;
  std::vector<Work> work_;
  std::vector<Transfer> stores_;
  std::vector<const float*> summed_;  // the registers whose columns are summed
  std::vector<Range> ranges_;
  std::vector<float> sums_;   // of a unit, register after register
  std::vector<float> nodes_;  // of all units, register after register
  std::vector<Stage> stages_;
  std::vector<std::unique_ptr<Line[]>> memory_;
  std::atomic_flag is_running_;
};

}  // namespace tessera::kernels::tiles
