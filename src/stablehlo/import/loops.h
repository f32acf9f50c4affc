// JAX writes a scan as a while loop that reads and writes slices. Here it becomes a scan again, so
// that slices are read and written in place.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/builder.h"

namespace tessera::stablehlo {

/// A loop whose carry `counter`, a scalar of i32 or i64, is 0, 1, ... length - 1.
struct CountedLoop {
  std::int64_t length = 0;
  std::size_t num_consts = 0;
  std::size_t counter = 0;  // number of the carry
  /// Per constant: its number, if that is known.
  std::vector<std::optional<double>> numbers = {};
};

/// Appends the loop and returns its last carries. `body` maps constants and carries to carries.
/// Arrays of which iteration i only reads slice i (or slice length - 1 - i) are scanned, and arrays
/// of which it only writes that slice are stacked. Carries that do not change become constants.
std::vector<ir::ValueId> counted_loop(ir::Builder& b, const CountedLoop& loop,
                                      const ir::Function& body,
                                      const std::vector<ir::ValueId>& operands);

}  // namespace tessera::stablehlo
