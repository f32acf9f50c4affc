// Allocations by operator new that fail at will; those of buffers come from elsewhere.
#pragma once

#include <cstdint>

namespace tessera::testing {

/// While it lives, the allocation after the first `after` ones of all threads fails, and the
/// `count - 1` behind it. One at a time.
class FailingAllocations {
 public:
  explicit FailingAllocations(std::int64_t after, std::int64_t count = 1);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  bool has_failed() const;
};

}  // namespace tessera::testing
