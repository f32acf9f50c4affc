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
    line_ = row_end_ = nullptr;
  }
  /// Of all rows, before the first is asked for.
  std::int64_t lines() const { return (end_ - row_) * ((width_ + kLineBytes - 1) / kLineBytes); }

  void ask(std::int64_t lines) {
    const std::byte* line = line_;
    const std::byte* row_end = row_end_;
    for (; lines > 0; --lines) {
      if (line >= row_end) {
        if (row_ == end_) break;
        line = base_ + *row_++ * element_bytes_;
        row_end = line + width_;
      }
#if defined(__GNUC__)
      __builtin_prefetch(line, 0, 2);
#endif
      line += kLineBytes;
    }
    line_ = line;
    row_end_ = row_end;
  }

 private:
  const std::byte* base_ = nullptr;
  std::int64_t element_bytes_ = 1;
  const std::int64_t* row_ = nullptr;
  const std::int64_t* end_ = nullptr;
  std::int64_t width_ = 1;              // bytes
  const std::byte* line_ = nullptr;     // the next one of the row that was begun
  const std::byte* row_end_ = nullptr;  // of that row
};

}  // namespace tessera::kernels::gemm
