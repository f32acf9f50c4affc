// Ops over the elements of a named axis: the devices of a shard_map or the rows of a vmap.
//
// They have a meaning only inside the mapped function: src/batch replaces them by ordinary ops when
// it maps their axis. `size` is the number of elements.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"

namespace tessera::ops {

struct NamedAxis {
  std::string name;
  std::int64_t size;
};

/// The axis whose elements become the batch dimension.
struct BatchAxis {
  std::string_view name = {};  // empty if ops cannot refer to it
  AtomList atoms = {};         // mesh axes whose devices hold the elements, if any
  bool is_manual = false;      // the partitioner may not choose a split over any other axis
};

/// The index of this element: i32[].
ir::ValueId axis_index(ir::Builder& b, const NamedAxis& axis);
/// The same over several axes, the last one fastest; 0 without axes.
ir::ValueId axis_index(ir::Builder& b, const std::vector<NamedAxis>& axes);
/// The values of all elements, stacked along a new dimension 0. Every element gets the same result.
ir::ValueId axis_gather(ir::Builder& b, ir::ValueId x, const NamedAxis& axis);
/// Slice j along dimension 0 goes to element j. Slice i of the result comes from element i.
ir::ValueId axis_all_to_all(ir::Builder& b, ir::ValueId x, const NamedAxis& axis);
/// Element i gets the value of element sources[i]; `sources` is a permutation.
ir::ValueId axis_permute(ir::Builder& b, ir::ValueId x, const NamedAxis& axis, ir::Ints sources);

/// Whether the op is one of these.
bool is_axis_op(const ir::Equation& equation);
/// Whether the op is one of these, over the axis of this name.
bool is_over_axis(const ir::Equation& equation, std::string_view axis);
/// Whether all elements get the same results from one of these ops.
bool is_same_for_all(const ir::Equation& equation);
/// The value of the equation over an axis with a single element. Throws UserError for an axis with
/// several elements that no vmap or shard_map has mapped.
ir::ValueId without_axis(ir::Builder& b, const ir::Equation& equation,
                         const std::vector<ir::ValueId>& operands);

}  // namespace tessera::ops
