// For batch rules: indices that differ between the elements of a batch.
#pragma once

#include "ops/emit.h"

namespace tessera::ops {

/// Gathers from x [n, a.., m, b..] along dimension `dim`, which has size m. `places` [n, k] are the
/// indices: those in row i are used for row i of x. The result is [n, a.., k, b..].
inline ValueId gather_places(Builder& b, ValueId x, ValueId places, std::int64_t dim) {
  Shape shape = b.type(x).shape;
  shape[static_cast<std::size_t>(dim)] = b.type(places).shape[1];
  return gather_along(b, x, broadcast_in_dim(b, places, {0, dim}, shape), dim);
}

}  // namespace tessera::ops
