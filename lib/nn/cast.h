// The dtype in which a layer computes.
#pragma once

#include <optional>

#include <tessera/ops.h>

namespace tessera::nn {

/// The array in `dtype`, if one is given.
inline Array cast(const Array& x, const std::optional<DType>& dtype) {
  return dtype && x.dtype() != *dtype ? astype(x, *dtype) : x;
}

}  // namespace tessera::nn
