// Makes chosen calls of operator new fail. Tile buffers do not come from operator new.
#pragma once

#include <cstdint>

namespace tessera::testing {

/// While it lives: the first `after` allocations of all threads succeed, the next `count` ones
/// fail, later ones succeed again. Only one object may exist at a time.
class FailingAllocations {
 public:
  explicit FailingAllocations(std::int64_t after, std::int64_t count = 1);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  bool has_failed() const;
};

}  // namespace tessera::testing
