// Prefetching operands before they are packed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "compile/host/kernels/gemm/gemm_internal.h"

namespace tessera::kernels::gemm {

/// Prefetches the rows of a rectangle in memory, a few lines per call. Memory would otherwise be
/// idle while a tile is computed in registers; this way packing does not wait for it later.
class Ahead {
 public:
  /// Prefetches nothing.
  Ahead() = default;
  /// Row i begins at element `rows[i]` from `base` and is `width` elements long. `calls` calls of
  /// ask() prefetch all rows.
  Ahead(const std::byte* base, std::int64_t element_bytes, const std::int64_t* rows,
        std::int64_t num_rows, std::int64_t width, std::int64_t calls)
      : base_(base),
        element_bytes_(element_bytes),
        row_(rows),
        end_(rows + num_rows),
        lines_of_row_(ceil_div(width * element_bytes, kLineBytes)),
        lines_of_call_(ceil_div(num_rows * lines_of_row_, calls)) {}

  /// Prefetches a few lines.
  void ask() {
    if (lines_of_call_ <= left_) return ask_of_row(lines_of_call_);
    ask_of_rows();
  }

 private:
  void ask_of_row(std::int64_t lines) {
    const std::byte* line = line_;
    for (std::int64_t i = 0; i < lines; ++i, line += kLineBytes) {
#if defined(__GNUC__)
      __builtin_prefetch(line, 0, 2);
#endif
    }
    line_ = line;
    left_ -= lines;
  }

  // Goes on to the next rows.
  void ask_of_rows() {
    std::int64_t lines = lines_of_call_;
    for (; lines > left_ && row_ != end_; ++row_) {
      lines -= left_;
      ask_of_row(left_);
      line_ = base_ + *row_ * element_bytes_;
      left_ = lines_of_row_;
    }
    ask_of_row(std::min(lines, left_));
    if (left_ == 0 && row_ == end_) lines_of_call_ = 0;
  }

  const std::byte* base_ = nullptr;
  std::int64_t element_bytes_ = 1;
  const std::int64_t* row_ = nullptr;  // to begin next
  const std::int64_t* end_ = nullptr;
  std::int64_t lines_of_row_ = 0;
  std::int64_t lines_of_call_ = 0;
  const std::byte* line_ = nullptr;  // to prefetch next
  std::int64_t left_ = 0;            // lines of its row
};

}  // namespace tessera::kernels::gemm
