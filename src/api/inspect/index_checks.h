// Errors for indices out of range, if the context enables them.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/array.h>

namespace tessera::detail {

struct IndexBound {
  const char* op;         // the op that the user called
  std::int64_t size;      // indices are from 0 to size - 1
  std::string of;         // what they point into: `axis 0 of f32[10,4]`
  const char* otherwise;  // what happens to an index out of range when nothing is checked
};
/// Checks the indices now if they are known, otherwise when the traced program runs.
void check_indices(const Array& indices, const IndexBound& bound);

/// While it exists, this thread checks no indices. For ops that use indices out of range to drop
/// elements.
class UncheckedIndices {
 public:
  UncheckedIndices();
  ~UncheckedIndices();
  UncheckedIndices(const UncheckedIndices&) = delete;
  UncheckedIndices& operator=(const UncheckedIndices&) = delete;
};

}  // namespace tessera::detail
