// Fused elementwise regions: short programs that run tile by tile, so that values stay in cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <tessera/types.h>

#include "compile/host/kernels/elementwise/elementwise.h"
#include "compile/host/kernels/reduce.h"

namespace tessera::kernels {

/// The position of element i of the iteration space in a buffer: offset + sum(i_d * strides_d).
struct TileAccess {
  int buffer;
  std::int64_t offset = 0;            // in elements
  std::vector<std::int64_t> strides;  // in elements; 0 broadcasts, a negative stride goes backwards
  DType dtype;
  friend bool operator==(const TileAccess&, const TileAccess&) = default;
};

/// A register holds one element per index, or one per row. The indices of a row differ only in the
/// last dimension.
enum class StepKind : std::uint8_t {
  map,     // applies the kernel to registers of the same sort
  reduce,  // reduces each row to one element
  expand,  // broadcasts one element per row to the whole row
};

struct TileStep {
  const TileKernel* kernel;  // map
  int num_inputs;
  int inputs[3];  // registers
  int output;     // register
  DType out_dtype;
  StepKind kind = StepKind::map;
  bool is_row = false;  // map: the registers hold one element per row
  int reduction = -1;   // reduce: an index into the reductions of the program
};

/// The longest rows of programs that reduce or expand rows.
inline constexpr std::int64_t kMaxRowLength = 4096;

/// Registers are numbered from 0 to num_registers - 1. Each is written once: by a load, a constant,
/// a generator or a step. A store or a column sum may name any register.
struct TileProgram {
  /// With `is_row`, the access has no stride for the last dimension.
  struct Load {
    int reg;
    TileAccess access;
    bool is_row = false;
  };
  struct Constant {
    int reg;
    double value;
    DType dtype;
  };
  /// start + sum(i_d * coefficients_d), converted to dtype.
  struct Iota {
    int reg;
    std::int64_t start;
    std::vector<std::int64_t> coefficients;
    DType dtype;
  };
  /// y0 ^ y1 of threefry2x32 at the 64-bit index base + sum(i_d * strides_d). The key is two u32.
  struct RandomBits {
    int reg;
    int key_buffer;
    std::int64_t base;
    std::vector<std::int64_t> strides;
  };
  struct Store {
    int reg;
    TileAccess access;
    bool is_row = false;
  };
  /// Reduces f32 by a sum, a max or a min.
  struct Reduction {
    ReduceKind kind;
    std::vector<std::int64_t> cuts;  // see RowReducer
  };

  /// The sum of a register of f32 over all dimensions but the last, or over all; `buffer` gets it.
  struct ColumnSum {
    int reg;
    int buffer;
  };

  Shape extents;  // the iteration space
  int num_registers = 0;
  std::vector<Load> loads;
  std::vector<Constant> constants;
  std::vector<Iota> iotas;
  std::vector<RandomBits> random_bits;
  std::vector<TileStep> steps;
  std::vector<Store> stores;
  std::vector<Reduction> reductions;
  bool has_rows = false;  // some registers hold one element per row; then there is a last dimension
  std::vector<ColumnSum> column_sums;
  // With column sums: the grains of every dimension but the last, see ReduceProblem::cuts, and a
  // buffer of scratch_bytes().
  std::vector<std::vector<std::int64_t>> column_cuts;
  std::vector<std::int64_t> last_cuts;  // the grains of the last dimension; empty: it is not summed
  int scratch_buffer = -1;
};

/// How to run a program. Build it once; several threads may run it at the same time.
class TilePlan {
 public:
  TilePlan(TileProgram program, int num_workers);
  ~TilePlan();
  TilePlan(TilePlan&&) noexcept;
  TilePlan& operator=(TilePlan&&) noexcept;

  /// The number of independent parts for threads, at least 1. It never changes bits.
  int num_parts() const;
  /// `buffers` are indexed by the buffer numbers of the accesses. A stored buffer may be the same
  /// memory as a loaded one if both have the same access.
  void run(std::span<std::byte* const> buffers, int part) const;
  /// The size of the memory that all parts and join() share. 0: a single part computes the sums.
  std::int64_t scratch_bytes() const;
  /// Computes the column sums from what the parts left in the scratch memory.
  void join(std::span<std::byte* const> buffers) const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace tessera::kernels
