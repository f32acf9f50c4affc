// Operands asked for before they are packed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compile/host/kernels/gemm/gemm_internal.h"

namespace tessera::kernels::gemm {

/// Asks, some lines at a time, for the rows of a rectangle in memory, so that packing it later does
/// not wait: a tile in registers leaves the memory idle while it is computed.
class Ahead {
 public:
  /// Rows begin at element `rows[i]` from `base` on and are `width` elements long.
  void start(const std::byte* base, std::int64_t element_bytes, const std::int64_t* rows,
             std::int64_t num_rows, std::int64_t width) {
    base_ = base;
    element_bytes_ = element_bytes;
    row_ = rows;
    end_ = rows + num_rows;
    width_ = width * element_bytes;
    column_ = 0;
  }
  std::int64_t lines() const { return (end_ - row_) * ((width_ + kLineBytes - 1) / kLineBytes); }

  void ask(std::int64_t lines) {
    for (; lines > 0 && row_ != end_; --lines) {
#if defined(__GNUC__)
      __builtin_prefetch(base_ + *row_ * element_bytes_ + column_, 0, 2);
#endif
      column_ += kLineBytes;
      if (column_ < width_) continue;
      column_ = 0;
      ++row_;
    }
  }

 private:
  const std::byte* base_ = nullptr;
  std::int64_t element_bytes_ = 1;
  const std::int64_t* row_ = nullptr;
  const std::int64_t* end_ = nullptr;
  std::int64_t width_ = 1;   // bytes
  std::int64_t column_ = 0;  // bytes
};

}  // namespace tessera::kernels::gemm
