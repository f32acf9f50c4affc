// Indices that differ from one element of a batch to the next, for batch rules.
#pragma once

#include "ops/emit.h"

namespace tessera::ops {

/// For x [n, a.., m, b..] whose dimension `dim` has size m, and places [n, k]: row i of the result
/// [n, a.., k, b..] holds the slices of row i of x at row i of the places.
inline ValueId gather_places(Builder& b, ValueId x, ValueId places, std::int64_t dim) {
  Shape shape = b.type(x).shape;
  shape[static_cast<std::size_t>(dim)] = b.type(places).shape[1];
  return gather_along(b, x, broadcast_in_dim(b, places, {0, dim}, shape), dim);
}

}  // namespace tessera::ops
