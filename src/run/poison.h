// Dead ranges of the arena are filled with NaN bytes, so that a stale read shows in the results.
#pragma once

#include "run/executable.h"

namespace tessera::run {

/// One run's account of which ranges are still in use.
class Poison {
 public:
  Poison() = default;
  /// In sanitizer builds nothing of an earlier run is left in the arena either.
  Poison(const Executable& executable, std::byte* arena);
  /// To be called before what waits for the task may start.
  void task_ended(std::uint32_t task);

 private:
  const Executable* executable_ = nullptr;
  std::byte* arena_ = nullptr;
  std::vector<std::size_t> users_left_;                // per dead range
  std::vector<std::vector<std::size_t>> ranges_used_;  // per task; empty without dead ranges
};

}  // namespace tessera::run
