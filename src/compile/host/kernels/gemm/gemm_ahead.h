// Prefetching while tiles are computed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <hwy/base.h>

#include "compile/host/kernels/gemm/gemm_internal.h"

namespace tessera::kernels::gemm {

/// Prefetches the line at `from` to L2. Always inlined: g++ assumes that a function that only
/// prefetches has no effects, and drops the calls.
HWY_INLINE void prefetch_to_l2(const void* from) { __builtin_prefetch(from, 0, 2); }

/// Prefetches ten lines ahead to L2: lines of many rows may need the same few sets of L1.
template <class T>
HWY_INLINE void prefetch_far(const T* from) {
  prefetch_to_l2(reinterpret_cast<const char*>(from) + 10 * kLineBytes);
}

/// Lines to prefetch while a tile is computed. A core can wait for a dozen lines at once, and
/// stalls if it prefetches more, so a tile prefetches a few of them after every kStepsBetween
/// steps.
class LinesAhead {
 public:
  static constexpr std::int64_t kStepsBetween = 64;
  static constexpr std::int64_t kMost = 192;

  /// Replaces the lines by those for which list(add) calls add(line), at most kMost. The tile will
  /// prefetch `times` times.
  template <class List>
  HWY_INLINE void replace(std::int64_t times, const List& list) {
    // Not a member, because each line would wait until the line before it is counted in memory.
    const void** to = lines_.data();
    list([&](const void* line) { *to++ = line; });
    end_ = to;
    at_once_ = ceil_div(to - lines_.data(), times);
  }
  const void* const* begin() const { return lines_.data(); }
  const void* const* end() const { return end_; }
  /// How many lines to prefetch each time.
  std::int64_t at_once() const { return at_once_; }

 private:
  std::array<const void*, kMost> lines_;
  const void* const* end_ = lines_.data();
  std::int64_t at_once_ = 0;
};

/// Prefetches the rows of a rectangle in memory, a few lines per call. Memory would otherwise be
/// idle while a tile is computed in registers; this way packing does not wait for memory later.
class Ahead {
 public:
  static constexpr std::int64_t kMostLinesOfCall = 32;

  /// No rows.
  Ahead() = default;
  /// Row i begins at element `rows[i]` from `base` and is `width` elements long. `calls` calls of
  /// next() cover all rows, unless there are so few calls that each would need more than
  /// kMostLinesOfCall lines.
  Ahead(const std::byte* base, std::int64_t element_bytes, const std::int64_t* rows,
        std::int64_t num_rows, std::int64_t width, std::int64_t calls)
      : base_(base),
        element_bytes_(element_bytes),
        row_(rows),
        end_(rows + num_rows),
        lines_of_row_(ceil_div(width * element_bytes, kLineBytes)),
        lines_of_call_(std::min(ceil_div(num_rows * lines_of_row_, calls), kMostLinesOfCall)) {}

  /// Calls use(line) for a few lines.
  template <class Use>
  HWY_INLINE void next(const Use& use) {
    for (std::int64_t lines = lines_of_call_; lines > 0;) {
      if (left_ == 0 && !go_to_next_row()) return;
      const std::int64_t here = std::min(lines, left_);
      for (std::int64_t i = 0; i < here; ++i) use(line_ + i * kLineBytes);
      line_ += here * kLineBytes;
      left_ -= here;
      lines -= here;
    }
  }

  /// Prefetches a few lines.
  HWY_INLINE void ask() {
    next([](const std::byte* line) { prefetch_to_l2(line); });
  }

 private:
  bool go_to_next_row() {
    if (row_ == end_) {
      lines_of_call_ = 0;
      return false;
    }
    line_ = base_ + *row_++ * element_bytes_;
    left_ = lines_of_row_;
    return true;
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
