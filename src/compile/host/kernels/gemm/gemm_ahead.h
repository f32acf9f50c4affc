// Operands asked for before they are packed.
#pragma once

#include <cstdint>

#include "compile/host/kernels/gemm/gemm_internal.h"

namespace tessera::kernels::gemm {

/// Asks, some lines at a time, for the rows of a rectangle in memory, so that packing it later does
/// not wait: a tile in registers leaves the memory idle while it is computed.
class Ahead {
 public:
  /// Rows begin at `base + rows[i]` and are `width` floats long.
  void start(const float* base, const std::int64_t* rows, std::int64_t num_rows,
             std::int64_t width) {
    base_ = base;
    row_ = rows;
    end_ = rows + num_rows;
    width_ = width;
    column_ = 0;
  }
  std::int64_t lines() const { return (end_ - row_) * ((width_ + kLineFloats - 1) / kLineFloats); }

  void ask(std::int64_t lines) {
    for (; lines > 0 && row_ != end_; --lines) {
#if defined(__GNUC__)
      __builtin_prefetch(base_ + *row_ + column_, 0, 2);
#endif
      column_ += kLineFloats;
      if (column_ < width_) continue;
      column_ = 0;
      ++row_;
    }
  }

 private:
  const float* base_ = nullptr;
  const std::int64_t* row_ = nullptr;
  const std::int64_t* end_ = nullptr;
  std::int64_t width_ = 1;
  std::int64_t column_ = 0;
};

}  // namespace tessera::kernels::gemm
