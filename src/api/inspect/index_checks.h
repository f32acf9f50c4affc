// Errors for indices out of range, if the context asks for them.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/array.h>

namespace tessera::detail {

struct IndexBound {
  const char* op;         // that the user called
  std::int64_t size;      // indices are from 0 to size - 1
  std::string of;         // what they point into: `axis 0 of f32[10,4]`
  const char* otherwise;  // what happens to an index out of range when nothing is checked
};
/// Checks the indices now if they are known, else when the program runs, which is being traced.
void check_indices(const Array& indices, const IndexBound& bound);

/// While it exists, this thread checks no indices: for ops that drop elements in this way.
class UncheckedIndices {
 public:
  UncheckedIndices();
  ~UncheckedIndices();
  UncheckedIndices(const UncheckedIndices&) = delete;
  UncheckedIndices& operator=(const UncheckedIndices&) = delete;
};

}  // namespace tessera::detail
