// Element types of buffers.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <tessera/types.h>

#include "run/pjrt/abi.h"

namespace tessera::run::pjrt {

/// Bytes of one element; 0 for types whose elements are not whole bytes.
std::size_t element_bytes(abi::ElementType type);
abi::ElementType element_type(DType dtype);
/// The type that StableHLO calls f8E4M3FN, i4 and the like, whose elements are kept as bytes.
/// Throws std::out_of_range for another name.
abi::ElementType narrow_type(std::string_view name);

/// Makes bytes from a host the integers that their low bits are, if the type has 2 or 4 bits.
void wrap_elements(abi::ElementType type, std::span<std::byte> bytes);

}  // namespace tessera::run::pjrt
