// Roots of unity.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::kernels {

struct Root {
  double cosine;
  double sine;
};

/// exp(2 pi i k / length) for each k below `count`, each part within little more than half an ulp.
/// Computed by additions and multiplications alone, so they are the same on all machines.
std::vector<Root> roots_of_unity(std::int64_t length, std::int64_t count);

}  // namespace tessera::kernels
