// Element types of buffers.
#pragma once

#include <cstddef>

#include <tessera/types.h>

#include "run/pjrt/abi.h"

namespace tessera::plugin {

/// Bytes of one element; 0 for types whose elements are no whole bytes.
std::size_t element_bytes(run::pjrt::abi::ElementType type);
run::pjrt::abi::ElementType element_type(DType dtype);

}  // namespace tessera::plugin
