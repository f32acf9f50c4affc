// Arrays in the formats Zarr 2 and Zarr 3, as far as Orbax writes them.
#pragma once

#include <memory>
#include <string>

#include "foreign/foreign.h"
#include "foreign/orbax/key_values.h"

namespace tessera::foreign {

/// The array `key` of a store. If it cannot be read, it has a problem; elements are read when they
/// are asked for. Throws BadText if its description is damaged.
Tensor read_zarr(const std::shared_ptr<const KeyValues>& store, const std::string& key);

}  // namespace tessera::foreign
