// The memory of the registers of a loop.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "compile/host/kernels/loop/loop_order.h"

namespace tessera::kernels::loops {

/// The memory of a register. Chains read whole blocks of it, so a single element is repeated.
struct Home {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::size_t size = 0;
  const ChainKernels* repeats = nullptr;  // of one element: fill the block that chains read

  std::size_t element_bytes() const { return size_bytes(dtype); }
  std::size_t bytes() const { return size * element_bytes(); }
  StageOperand operand() const { return {.base = data, .mask = size == 1 ? 0 : ~std::size_t{0}}; }

  /// Gives the register the elements from `from` on.
  void fill(const std::byte* from) const;
  /// Repeats its own first element in the same way.
  void spread() const {
    if (repeats != nullptr) repeats->repeat(dtype, data, data);
  }
};

/// Bytes that are copied to the place `offset` bytes after a destination, `count` times in a row.
struct Copy {
  const std::byte* from;
  std::size_t offset;
  std::size_t bytes;
  std::size_t count = 1;

  void run(std::byte* to) const;
};

class Memory {
 public:
  Memory(const LoopProgram& program, const Order& order);
  Memory(const Memory&) = delete;

  const Home& operator[](int reg) const { return homes_[static_cast<std::size_t>(reg)]; }
  /// For a register that is in place: where it is now.
  void set_place(int reg, std::byte* data) { homes_[static_cast<std::size_t>(reg)].data = data; }
  const std::vector<DType>& dtypes() const { return dtypes_; }
  /// A register besides those of the program.
  Home add(DType dtype, std::size_t size);
  /// Zeros, aligned to a cache line.
  std::byte* add_bytes(std::size_t bytes);
  /// Copies, as few as possible, that give these elements.
  std::vector<Copy> copies_of(const LoopProgram::Elements& elements) const;

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  std::vector<Home> homes_;  // per register
  std::vector<DType> dtypes_;
  std::vector<std::unique_ptr<Line[]>> lines_;
};

}  // namespace tessera::kernels::loops
