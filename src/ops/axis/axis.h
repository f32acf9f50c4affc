// Ops over the elements of a named axis: over the devices of a shard_map, the rows of a vmap.
//
// They mean something within the mapped function only: src/batch puts ordinary ops in their places
// when it maps their axis. `size` is the number of elements.
#pragma once

#include <string>
#include <string_view>

#include "ir/builder.h"

namespace tessera::ops {

struct NamedAxis {
  std::string name;
  std::int64_t size;
};

/// The axis whose elements are those of a batch.
struct BatchAxis {
  std::string_view name = {};  // empty: ops cannot name it
  AtomList atoms = {};         // of the mesh, where the elements are on its devices
  bool is_manual = false;      // nor is any other axis of the mesh left to the partitioner
};

/// Which element this is: i32[].
ir::ValueId axis_index(ir::Builder& b, const NamedAxis& axis);
/// The values of all elements, stacked along a new dimension 0; the same for every element.
ir::ValueId axis_gather(ir::Builder& b, ir::ValueId x, const NamedAxis& axis);
/// Slice j along dimension 0 goes to element j; slice i of the result came from element i.
ir::ValueId axis_all_to_all(ir::Builder& b, ir::ValueId x, const NamedAxis& axis);
/// The value of element sources[i] for element i; `sources` is a permutation.
ir::ValueId axis_permute(ir::Builder& b, ir::ValueId x, const NamedAxis& axis, ir::Ints sources);

/// Whether the op is one of these.
bool is_axis_op(const ir::Equation& equation);
/// Whether the op is one of these, over the axis of this name.
bool is_over_axis(const ir::Equation& equation, std::string_view axis);
/// Whether all elements get the same results from one of these ops.
bool is_same_for_all(const ir::Equation& equation);
/// What the equation is without other elements. Throws UserError for an axis with more than one,
/// which nothing has mapped.
ir::ValueId without_axis(ir::Builder& b, const ir::Equation& equation,
                         const std::vector<ir::ValueId>& operands);

}  // namespace tessera::ops
