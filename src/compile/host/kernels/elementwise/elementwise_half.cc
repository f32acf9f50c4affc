// f16 and bf16 are stored as 16 bits and computed as f32: tile programs round at the end of each
// equation.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise/elementwise_half.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "compile/host/kernels/elementwise/elementwise_chain-inl.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

/// Prepares an integer for a conversion to bf16 by way of f32, which could otherwise round twice.
/// Where the integer has too many bits for f32, its low bits decide only whether it lies at a tie
/// between two bf16 values; a single sticky bit replaces them.
template <class D>
HWY_INLINE hn::Vec<D> shortened(hn::Vec<D> x, hn::Mask<D> is_short) {
  const auto low = hn::Set(D(), 0x1FF);
  const auto rest = hn::And(x, low);
  const auto sticky = hn::IfThenZeroElse(hn::Eq(rest, hn::Zero(D())), hn::Set(D(), 0x100));
  return hn::IfThenElse(is_short, x, hn::Or(hn::AndNot(low, x), sticky));
}
struct FromI32 {
  static HWY_INLINE VF run(VI x) {
    const VI limit = hn::Set(DI(), 1 << 24);
    const auto is_short = hn::And(hn::Lt(x, limit), hn::Gt(x, hn::Neg(limit)));
    return hn::ConvertTo(DF(), shortened<DI>(x, is_short));
  }
};
struct FromU32 {
  static HWY_INLINE VF run(VU x) {
    const VU kept = shortened<DU>(x, hn::Lt(x, hn::Set(DU(), 1U << 24)));
    const VI low = hn::BitCast(DI(), hn::And(kept, hn::Set(DU(), 0xFFFF)));
    const VI high = hn::BitCast(DI(), hn::ShiftRight<16>(kept));
    const VF scaled = hn::Mul(hn::ConvertTo(DF(), high), hn::Set(DF(), 65536.0f));
    return hn::Add(scaled, hn::ConvertTo(DF(), low));
  }
};

struct RoundToHalf {
  static HWY_INLINE VF run(VF x) { return F16::as_stored(x); }
};

std::span<const Entry> half_table() {
  static const Entry kEntries[] = {
      {"widen", DType::bf16, kernel<Copy, F32, BF16>()},
      {"narrow_to_bf16", DType::f32, kernel<Copy, BF16, F32>()},
      {"round_to_bf16", DType::f32, kernel<Rounded, F32, F32>()},
      {"widen", DType::f16, kernel<Copy, F32, F16>()},
      {"narrow_to_f16", DType::f32, kernel<Copy, F16, F32>()},
      {"round_to_f16", DType::f32, kernel<RoundToHalf, F32, F32>()},
      {"convert_i32_bf16", DType::i32, kernel<FromI32, F32, I32>()},
      {"convert_u32_bf16", DType::u32, kernel<FromU32, F32, U32>()},
      // Integers that f32 cannot represent are infinite in f16.
      {"convert_i32_f16", DType::i32, kernel<FromI32, F32, I32>()},
      {"convert_u32_f16", DType::u32, kernel<FromU32, F32, U32>()},
  };
  return kEntries;
}

}  // namespace
}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::elementwise {

HWY_EXPORT(half_table);

std::span<const Entry> half_entries() { return HWY_DYNAMIC_DISPATCH(half_table)(); }

}  // namespace tessera::kernels::elementwise
#endif  // HWY_ONCE
