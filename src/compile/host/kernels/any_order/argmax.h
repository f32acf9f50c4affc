// Positions of the largest elements.
#pragma once

#include <cstdint>

#include <tessera/types.h>

namespace tessera::kernels {

/// The lowest index of the largest (or least) element along the middle dimension. If there are
/// NaNs, the index of the first NaN.
struct ArgmaxProblem {
  DType dtype;
  std::int64_t outer = 1;
  std::int64_t size = 1;
  std::int64_t inner = 1;
  bool is_min = false;
};
/// Writes the results with the numbers from `first` to `end` - 1.
void argmax(const ArgmaxProblem& problem, std::int64_t first, std::int64_t end, const void* input,
            std::int32_t* output);

}  // namespace tessera::kernels
