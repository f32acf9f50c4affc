// Fills dead ranges of the arena with NaN bytes, so that a stale read shows in the results.
#pragma once

#include "run/executable.h"

namespace tessera::run {

/// Tracks which ranges are still in use during one run.
class Poison {
 public:
  Poison() = default;
  /// In sanitizer builds this also fills the whole arena, so that no data of an earlier run is
  /// left.
  Poison(const Executable& executable, std::byte* arena);
  /// Call this before the successors of the task may start.
  void task_ended(std::uint32_t task);

 private:
  const Executable* executable_ = nullptr;
  std::byte* arena_ = nullptr;
  std::vector<std::size_t> users_left_;                // per dead range
  std::vector<std::vector<std::size_t>> ranges_used_;  // per task; empty without dead ranges
};

}  // namespace tessera::run
