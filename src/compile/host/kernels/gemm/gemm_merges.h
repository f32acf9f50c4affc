// What is added to a new node of the summation tree.
#pragma once

#include <cstdint>

#include "compile/host/kernels/gemm/gemm_internal.h"

namespace tessera::kernels::gemm {

/// The nodes that are added to a new one, in order, and whether +0.0 is added before each and at
/// the end.
struct Merges {
  static constexpr int kMost = 64;
  const float* nodes[kMost];
  bool zeros[kMost + 1] = {};
  int count = 0;
  bool has_zeros = false;

  /// Appends what `actions` adds: nodes of `size` floats below `top`.
  void append(const NodeActions& actions, const float* top, std::int64_t size) {
    for (std::int32_t i = 0; i < actions.merges; ++i) {
      zeros[count] |= (actions.zeros >> i & 1u) != 0;
      nodes[count++] = top -= size;
    }
    zeros[count] |= (actions.zeros >> actions.merges & 1u) != 0;
    has_zeros |= actions.zeros != 0;
  }
};

}  // namespace tessera::kernels::gemm
