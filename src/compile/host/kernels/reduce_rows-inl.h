// Vector loops of reductions; compiled once per instruction set.

#if defined(TESSERA_REDUCE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_REDUCE_ROWS_INL_H_
#undef TESSERA_REDUCE_ROWS_INL_H_
#else
#define TESSERA_REDUCE_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include "compile/host/kernels/reduce_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, 16>;
using I = hn::RebindToSigned<F>;
using VF = hn::Vec<F>;
using VI = hn::Vec<I>;
constexpr std::int64_t kN = HWY_MIN(hn::MaxLanes(F()), 16);
constexpr std::int64_t kVectors = 16 / kN;

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

/// 16 interleaved accumulators over `rows` runs of `length` terms, `row_stride` apart.
float SumLanes(const float* from, std::int64_t rows, std::int64_t row_stride, std::int64_t length) {
  const F d;
  VF sums[kVectors];
  for (VF& sum : sums) sum = hn::Zero(d);
  const std::int64_t whole = length / 16 * 16;
  for (std::int64_t row = 0; row < rows; ++row, from += row_stride) {
    for (std::int64_t i = 0; i < whole; i += 16) {
      for (std::int64_t v = 0; v < kVectors; ++v) {
        sums[v] = hn::Add(sums[v], hn::LoadU(d, from + i + v * kN));
      }
    }
    if (whole == length) continue;
    // Lanes beyond the end keep their sums: x + (+0.0) could turn a sum of -0.0 into +0.0, but no
    // accumulator is ever -0.0, since all start at +0.0.
    HWY_ALIGN float rest[16] = {};
    for (std::int64_t i = whole; i < length; ++i) rest[i - whole] = from[i];
    for (std::int64_t v = 0; v < kVectors; ++v) {
      sums[v] = hn::Add(sums[v], hn::Load(d, rest + v * kN));
    }
  }
  HWY_ALIGN float lanes[16];
  for (std::int64_t v = 0; v < kVectors; ++v) hn::Store(sums[v], d, lanes + v * kN);
  for (std::size_t half = 8; half >= 1; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

/// to[c] = sum over rows of from[row * row_stride + c], one accumulator per column.
void SumColumns(const float* from, std::int64_t rows, std::int64_t row_stride, std::int64_t columns,
                float* to) {
  const F d;
  std::int64_t c = 0;
  constexpr std::int64_t kBlock = 4 * kN;
  for (; c + kBlock <= columns; c += kBlock) {
    VF sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    const float* at = from + c;
    for (std::int64_t row = 0; row < rows; ++row, at += row_stride) {
      for (std::int64_t v = 0; v < 4; ++v) sums[v] = hn::Add(sums[v], hn::LoadU(d, at + v * kN));
    }
    for (std::int64_t v = 0; v < 4; ++v) hn::StoreU(sums[v], d, to + c + v * kN);
  }
  for (; c < columns; ++c) {
    float sum = 0.0F;
    for (std::int64_t row = 0; row < rows; ++row) sum += from[row * row_stride + c];
    to[c] = sum;
  }
}

/// a[i] += b[i].
void AddRow(float* a, const float* b, std::int64_t count) {
  const F d;
  std::int64_t i = 0;
  for (; i + kN <= count; i += kN) {
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, a + i);
  }
  for (; i < count; ++i) a[i] += b[i];
}

/// Bits of floats as integers in the order -inf < ... < -0 < +0 < ... < inf; NaN set apart.
HWY_INLINE VI Ordered(VI bits) {
  const I i;
  return hn::Xor(bits, hn::And(hn::ShiftRight<31>(bits), hn::Set(i, 0x7fffffff)));
}

/// The largest element of a run, or the smallest when `sign` is -1; NaN wins.
float ExtremeOfRun(const float* from, std::int64_t length, bool is_min) {
  const F d;
  const I i;
  VI best = hn::Set(i, is_min ? 0x7fffffff : -0x7fffffff - 1);
  // Highway 1.0.3's Ne is false for NaN on x86.
  auto has_nan = hn::Not(hn::Eq(hn::Zero(d), hn::Zero(d)));
  std::int64_t at = 0;
  for (; at + kN <= length; at += kN) {
    const VF x = hn::LoadU(d, from + at);
    has_nan = hn::Or(has_nan, hn::Not(hn::Eq(x, x)));
    const VI ordered = Ordered(hn::BitCast(i, x));
    best = is_min ? hn::Min(best, ordered) : hn::Max(best, ordered);
  }
  HWY_ALIGN std::int32_t lanes[kN];
  hn::Store(best, i, lanes);
  std::int32_t extreme = lanes[0];
  for (std::int32_t lane : lanes)
    extreme = is_min ? HWY_MIN(extreme, lane) : HWY_MAX(extreme, lane);
  bool is_nan = !hn::AllFalse(d, has_nan);
  for (; at < length; ++at) {
    is_nan = is_nan || from[at] != from[at];
    const std::int32_t ordered = ordered_bits(from[at]);
    extreme = is_min ? HWY_MIN(extreme, ordered) : HWY_MAX(extreme, ordered);
  }
  return is_nan ? std::numeric_limits<float>::quiet_NaN() : from_ordered_bits(extreme);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
