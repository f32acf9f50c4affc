// Groups equations into nodes: fused regions of elementwise equations and reductions of rows, and
// kernels of their own.
#pragma once

#include <optional>
#include <vector>

#include "ir/ir.h"

namespace tessera::compile::host {

/// Equations that run as one instruction; several only for regions.
struct Node {
  std::vector<std::size_t> equations;  // in program order
  bool is_region = false;
  ir::ValueId over = 0;   // a value whose indices are those of the region
  bool has_rows = false;  // some values of the region have one element per row of `over`
};

/// Where a value's elements lie: in memory of its own or, for a view, in that of `base`.
struct Reading {
  ir::ValueId base;
  enum class Kind : std::uint8_t {
    same,   // the elements of the base in their order, but for dimensions of one index
    rows,   // one element of the base for a row along the last dimension
    other,  // at other places
  } kind;
};

/// What becomes of every value, and the nodes in execution order.
struct Fusion {
  std::vector<Node> nodes;
  std::vector<std::size_t> definition;  // per value: its equation, or kNoEquation for inputs
  std::vector<bool> is_view;            // per value: read through its operand, has no memory
  std::vector<bool> needs_buffer;       // per value: read from outside of its node
  /// Per value: the transpose that alone reads it and in whose order its elements lie, if a product
  /// writes them so; else kNoValue.
  std::vector<ir::ValueId> lies_as;
  std::vector<Reading> readings;  // per value
  /// Per value: the number of its index space. Spaces leave out dimensions of one index; equal ones
  /// are split alike.
  std::vector<int> spaces;
  std::vector<int> rows_of;  // per space: that of its rows, or -1 where no region may look at rows
  std::vector<std::optional<double>> splat;  // per value: a constant in every element
};
inline constexpr std::size_t kNoEquation = ~std::size_t{0};

/// `phases`: a number per equation, never falling; no node has equations of two phases. None: all
/// are of one phase. `transfers_move`: the result of a transfer has memory of its own.
Fusion fuse(const ir::Function& function, const std::vector<int>& phases = {},
            bool transfers_move = false);

/// Whether a dimension has one index, in every tile: of size 1 and not split.
bool has_one_index(const ir::Function& function, ir::ValueId value, std::size_t dim);
/// The value over whose indices an equation runs: the operand of a reduction, else the result.
ir::ValueId iterated(const ir::Equation& equation);
/// How an equation of a region reads an operand that the region computes; `other`: it cannot.
Reading::Kind reading_within(const ir::Function& function, const Fusion& fusion,
                             const ir::Equation& equation, ir::ValueId operand);
/// Whether a region may compute the equation along with the elementwise work around it: a
/// reduction of rows.
bool is_row_reduction(const ir::Function& function, const Fusion& fusion,
                      const ir::Equation& equation);

}  // namespace tessera::compile::host
