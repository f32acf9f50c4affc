// Groups equations into nodes: fused regions of elementwise equations, reductions of rows and sums
// of columns, and single kernels.
#pragma once

#include <optional>
#include <vector>

#include "ir/ir.h"

namespace tessera::compile::host {

/// Equations that run as one instruction. Only regions have several.
struct Node {
  std::vector<std::size_t> equations;  // in program order
  bool is_region = false;
  ir::ValueId over = 0;      // a value with the region's index space
  bool has_rows = false;     // some values of the region have one element per row of `over`
  bool has_columns = false;  // some are sums over all dimensions of `over` but the last
  bool sums_all = false;     // whether these sums also go over the last dimension
};

/// Where the elements of a value are: in its own memory or, for a view, in that of `base`.
struct Reading {
  ir::ValueId base;
  enum class Kind : std::uint8_t {
    same,   // the elements of the base in order, except for dimensions of size 1
    rows,   // one element of the base per row along the last dimension
    other,  // at other positions
  } kind;
};

/// What happens to every value, and the nodes in execution order.
struct Fusion {
  std::vector<Node> nodes;
  std::vector<std::size_t> definition;  // per value: its equation, or kNoEquation for inputs
  /// Per value: whether it is a view of its operand and not stored, or a padded array whose readers
  /// leave the padding out.
  std::vector<bool> is_view;
  std::vector<bool> needs_buffer;  // per value: read from outside of its node
  /// Per value: the transpose that is its only reader, if a product writes the value's elements in
  /// the order of that transpose; otherwise kNoValue.
  std::vector<ir::ValueId> lies_as;
  std::vector<Reading> readings;  // per value
  /// Per value: the number of its index space. Spaces ignore dimensions of size 1. Values of the
  /// same space are split the same way.
  std::vector<int> spaces;
  std::vector<int> rows_of;  // per space: the space of its rows, or -1 if no region may use rows
  std::vector<std::optional<double>> splat;  // per value: a constant in every element
  /// Per value: the number around a padded array whose readers leave the padding out.
  std::vector<std::optional<double>> padding;

  int rows_in(int space) const { return rows_of[static_cast<std::size_t>(space)]; }
};
inline constexpr std::size_t kNoEquation = ~std::size_t{0};

/// `phases`: a number per equation, never decreasing; a node has equations of one phase only.
/// Empty: there is just one phase. `transfers_move`: the result of a transfer has its own memory.
/// `num_workers`: sums of columns join a region only if this many threads can share it.
Fusion fuse(const ir::Function& function, const std::vector<int>& phases = {},
            bool transfers_move = false, int num_workers = 1);

/// Whether a dimension has size 1 and is not split.
bool has_one_index(const ir::Function& function, ir::ValueId value, std::size_t dim);
/// The value whose indices an equation iterates over: the operand of a reduction, otherwise the
/// result.
ir::ValueId iterated(const ir::Equation& equation);
/// How an equation of a region reads an operand that the region computes; `other` if it cannot.
Reading::Kind reading_within(const ir::Function& function, const Fusion& fusion,
                             const ir::Equation& equation, ir::ValueId operand);
/// Whether a region may compute the equation along with the elementwise work around it: a
/// reduction of rows.
bool is_row_reduction(const ir::Function& function, const Fusion& fusion,
                      const ir::Equation& equation);
/// The same for a sum over all dimensions, or over all but the last. No region reads its result.
bool is_column_sum(const ir::Function& function, const ir::Equation& equation);
/// Whether the sum is over all dimensions.
bool sums_all(const ir::Function& function, const ir::Equation& equation);

}  // namespace tessera::compile::host
