// StableHLO text of a program, for compilers of accelerators.
//
//   std::string text = stablehlo::emit(partitioned, {.donated = {true, false}});
//
// All devices of the mesh run the same program, as replicas: replica i is the device with id i. Its
// types are those of tiles, and collectives name the replicas that exchange data. Tiles that
// differ in size are padded to the largest; elements read beyond the end of a tile never reach a
// result.
//
// Throws UserError, naming op and line, for what StableHLO cannot express.
#pragma once

#include <string>
#include <vector>

#include "ir/ir.h"

namespace tessera::stablehlo {

struct EmitOptions {
  /// Per input: whether its memory may be reused. Missing entries are false.
  std::vector<bool> donated = {};
  /// Whether bf16 is converted to f32 before it is multiplied: CPU clients refuse bf16 products
  /// with f32 results. Accelerators have units for these.
  bool widens_products = false;
  /// Whether attention in bf16 and f16 calls cuDNN's kernels, which never hold all scores in
  /// memory. XLA knows these kernels for NVIDIA devices of compute capability 8.0 and newer.
  bool fuses_attention = false;
  /// Dimensions of bf16 and f16 products with at least this many elements are padded to a multiple
  /// of 64, unless they are a multiple of 8; 0: none are. Tensor cores multiply rows whose length
  /// is a multiple of 16 bytes, and take about three times as long for others.
  std::int64_t pads_products_from = 0;
};

/// A module with one function, `main`. `function` has shardings or none, as the stages leave it.
std::string emit(const ir::Function& function, const EmitOptions& options = {});

}  // namespace tessera::stablehlo
