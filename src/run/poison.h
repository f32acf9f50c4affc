// Fills dead ranges of the arena with NaN bytes, so that a stale read shows in the results.
#pragma once

#include <mutex>

#include "run/executable.h"

namespace tessera::run {

/// Tracks which ranges are still in use during one run.
class Poison {
 public:
  /// Begins a run. In sanitizer builds this also fills the whole arena, so that no data of an
  /// earlier run is left.
  void start(const Executable& executable, std::byte* arena);
  /// Call this before the successors of the task may start. Threads may call it at the same time.
  void task_ended(std::uint32_t task) {
    if (!ranges_used_.empty()) fill_dead(task);
  }

 private:
  void fill_dead(std::uint32_t task);

  const Executable* executable_ = nullptr;
  std::byte* arena_ = nullptr;
  std::mutex mutex_;                                   // for users_left_
  std::vector<std::size_t> users_left_;                // per dead range
  std::vector<std::vector<std::size_t>> ranges_used_;  // per task; empty without dead ranges
};

}  // namespace tessera::run
