// Which elements dropout keeps, by their random bits.
#pragma once

#include <cmath>
#include <cstdint>

namespace tessera {

/// Keeps what random::bernoulli(key, 1 - rate) keeps: elements whose bits, as a number in [0, 1),
/// are below the probability of being kept. These are multiplied by `scale`.
struct DropRule {
  std::uint32_t below;  // keeps elements whose upper 23 bits are below this
  double scale;

  /// 0 <= rate < 1
  explicit DropRule(double rate)
      : below(static_cast<std::uint32_t>(
            std::ceil(static_cast<double>(static_cast<float>(1.0 - rate)) * 8388608.0))),
        scale(1.0 / (1.0 - rate)) {}

  bool keeps(std::uint32_t bits) const { return bits >> 9U < below; }
};

}  // namespace tessera
