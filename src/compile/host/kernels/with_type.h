// Selects an element type by a dtype that is known at run time.
#pragma once

#include <cstdint>

#include <tessera/types.h>

namespace tessera::kernels {

/// Calls `visit` with a zero of the element type; booleans are bytes. For kernels that compute:
/// they never get bf16, which is converted to f32 before.
template <typename Visit>
void with_type(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::boolean:
      return visit(std::uint8_t{});
    case DType::i32:
      return visit(std::int32_t{});
    case DType::u32:
      return visit(std::uint32_t{});
    case DType::bf16:
      return;
    case DType::f32:
      return visit(float{});
    case DType::f64:
      return visit(double{});
  }
}

/// The same for kernels that only move elements, which also get bf16.
template <typename Visit>
void with_element(DType dtype, Visit visit) {
  if (dtype == DType::bf16) return visit(bfloat16{});
  with_type(dtype, visit);
}

}  // namespace tessera::kernels
