// Units that multiply bf16 and add in f32. The bits of a product of bf16 arrays depend on the unit.
// A unit is defined by how it adds the terms of one grain (DotSum). All units start a grain at +0.0
// and add the nodes of the summation tree as f32.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace tessera {

/// portable: fused multiply-adds of f32, on every machine. avx512_bf16: vdpbf16ps, which also adds
/// term after term, but replaces subnormal factors and sums by zeros of the same sign. amx_bf16:
/// tdpbf16ps, which treats subnormals in the same way, and adds the terms of a grain in blocks of
/// 32: in a block, the terms at even positions are one sum and those at odd positions another; both
/// start at +0.0. The sum of the two is added to that of the earlier blocks.
enum class DotUnit : std::uint8_t { portable, avx512_bf16, amx_bf16 };
/// The slowest first, on most processors.
inline constexpr DotUnit kDotUnits[] = {DotUnit::portable, DotUnit::avx512_bf16, DotUnit::amx_bf16};
/// `portable`, `avx512_bf16`, `amx_bf16`.
std::string_view name(DotUnit unit);

namespace detail {

inline constexpr float kLeastNormal = 0x1p-126F;

inline float without_subnormal(float x) {
  return std::abs(x) < kLeastNormal ? std::copysign(0.0F, x) : x;
}

}  // namespace detail

/// The sum with one more term, whose factors are bf16, for units that add term after term.
inline float add_product(DotUnit unit, float sum, float x, float y) {
  if (unit == DotUnit::portable) return std::fma(x, y, sum);
  x = detail::without_subnormal(x);
  y = detail::without_subnormal(y);
  const float rounded = std::fma(x, y, sum);
  // Whether a sum is subnormal is decided after rounding to 24 bits with an unbounded exponent. In
  // double the sum is exact wherever that matters.
  constexpr double kLeastRoundedUp = 0x1p-126 - 0x1p-151;
  const double exact = static_cast<double>(x) * static_cast<double>(y) + static_cast<double>(sum);
  return std::abs(exact) < kLeastRoundedUp ? std::copysign(0.0F, rounded) : rounded;
}

/// The number of terms in a block of amx_bf16.
inline constexpr int kBlockTerms = 32;

/// A convolution takes the channels of a grain in groups, the last of which may be smaller. Each
/// group goes through the whole window and takes its channels at each place. These are adjacent in
/// memory, as the terms of one instruction should be.
struct ChannelGroups {
  std::int64_t size = 1;
  bool last_first = false;  ///< the last channel of a group is its first term
};

/// The instruction of avx512_bf16 multiplies words of two terms and adds the product of the high
/// halves first; that of amx_bf16 multiplies blocks.
constexpr ChannelGroups channel_groups(DotUnit unit) {
  if (unit == DotUnit::avx512_bf16) return {.size = 2, .last_first = true};
  return {.size = unit == DotUnit::amx_bf16 ? kBlockTerms : 1};
}

/// The sum of one grain. Factors are bf16.
class DotSum {
 public:
  explicit DotSum(DotUnit unit) : unit_(unit) {}

  void add(float x, float y) {
    if (unit_ != DotUnit::amx_bf16) {
      sum_ = add_product(unit_, sum_, x, y);
      return;
    }
    float& half = terms_ % 2 == 0 ? even_ : odd_;
    half = add_product(DotUnit::avx512_bf16, half, x, y);
    if (++terms_ < kBlockTerms) return;
    sum_ = value();
    even_ = odd_ = 0;
    terms_ = 0;
  }

  float value() const {
    if (terms_ == 0) return sum_;
    return detail::without_subnormal(sum_ + detail::without_subnormal(even_ + odd_));
  }

 private:
  DotUnit unit_;
  float sum_ = 0;
  float even_ = 0, odd_ = 0;  // of the block that is being filled
  int terms_ = 0;             // in that block
};

}  // namespace tessera
