// Element types of buffers.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/types.h>

#include "run/pjrt/abi.h"

namespace tessera::run::pjrt {

/// Bytes of one element; 0 for types whose elements are not whole bytes.
std::size_t element_bytes(abi::ElementType type);
abi::ElementType element_type(DType dtype);
/// The type of floats of 8 bits that StableHLO calls f8E4M3FN and the like. Throws
/// std::out_of_range for another name.
abi::ElementType float8_type(std::string_view name);

}  // namespace tessera::run::pjrt
