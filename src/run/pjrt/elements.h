// Element types of buffers.
#pragma once

#include <cstddef>

#include <tessera/types.h>

#include "run/pjrt/abi.h"

namespace tessera::run::pjrt {

/// Bytes of one element; 0 for types whose elements are not whole bytes.
std::size_t element_bytes(abi::ElementType type);
abi::ElementType element_type(DType dtype);

}  // namespace tessera::run::pjrt
