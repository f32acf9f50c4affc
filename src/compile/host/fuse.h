// Groups equations into nodes: fused elementwise regions, and kernels of their own.
#pragma once

#include <optional>
#include <vector>

#include "ir/ir.h"

namespace tessera::compile::host {

/// Equations that run as one instruction; several only for elementwise regions.
struct Node {
  std::vector<std::size_t> equations;  // in program order
  bool is_region = false;
};

/// What becomes of every value, and the nodes in execution order.
struct Fusion {
  std::vector<Node> nodes;
  std::vector<std::size_t> definition;       // per value: its equation, or kNoEquation for inputs
  std::vector<bool> is_view;                 // per value: read through its operand, has no memory
  std::vector<bool> needs_buffer;            // per value: read from outside of its node
  std::vector<std::optional<double>> splat;  // per value: a constant in every element
};
inline constexpr std::size_t kNoEquation = ~std::size_t{0};

Fusion fuse(const ir::Function& function);

}  // namespace tessera::compile::host
