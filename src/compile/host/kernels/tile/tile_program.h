// Fused elementwise regions: short programs whose steps run tile by tile, in cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <tessera/types.h>

#include "compile/host/kernels/tile/elementwise.h"

namespace tessera::kernels {

/// Where element i of the iteration space lies in a buffer: offset + sum(i_d * strides_d).
struct TileAccess {
  int buffer;
  std::int64_t offset = 0;            // in elements
  std::vector<std::int64_t> strides;  // in elements; 0 repeats, negative runs backwards
  DType dtype;
  friend bool operator==(const TileAccess&, const TileAccess&) = default;
};

struct TileStep {
  TileKernel kernel;
  int num_inputs;
  int inputs[3];  // registers
  int output;     // register
  DType out_dtype;
};

/// Registers are numbered from 0 to num_registers - 1 and written once: by a load, a constant, a
/// generator or a step. A store may name any register.
struct TileProgram {
  struct Load {
    int reg;
    TileAccess access;
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
  /// y0 ^ y1 of threefry2x32 at the 64-bit index base + sum(i_d * strides_d); the key is two u32.
  struct RandomBits {
    int reg;
    int key_buffer;
    std::int64_t base;
    std::vector<std::int64_t> strides;
  };
  struct Store {
    int reg;
    TileAccess access;
  };

  Shape extents;  // the iteration space
  int num_registers = 0;
  std::vector<Load> loads;
  std::vector<Constant> constants;
  std::vector<Iota> iotas;
  std::vector<RandomBits> random_bits;
  std::vector<TileStep> steps;
  std::vector<Store> stores;
};

/// How to run a program: built once, run many times, by several threads at once.
class TilePlan {
 public:
  explicit TilePlan(TileProgram program);
  ~TilePlan();
  TilePlan(TilePlan&&) noexcept;
  TilePlan& operator=(TilePlan&&) noexcept;

  /// Independent parts for threads; at least 1. They never change bits.
  int num_parts() const;
  /// Buffers as numbered by the accesses. A stored buffer may be the memory of a loaded one when
  /// both are accessed alike.
  void run(std::span<std::byte* const> buffers, int part) const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace tessera::kernels
