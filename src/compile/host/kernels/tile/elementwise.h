// Vector kernels for one op over contiguous runs: the steps of tile programs.
//
// Each gives the same bits on every instruction set, for every length and alignment. FMA occurs
// only inside the polynomials of functions and in the op `fma`.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/types.h>

namespace tessera::kernels {

/// An operand of a kernel: a run of n elements, or one element that stands for all of them.
struct TileInput {
  const void* data;
  bool is_scalar;
};

/// Writes n elements. `output` may be the memory of an input of the same element size.
using TileKernel = void (*)(const TileInput* inputs, void* output, std::size_t n);

/// The kernel named `name` for operands of `dtype` (of the last operand where they differ);
/// nullptr when there is none.
TileKernel find_tile_kernel(std::string_view name, DType dtype);

}  // namespace tessera::kernels
