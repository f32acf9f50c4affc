// The element types of elementwise kernels, and ops of their vectors, compiled once per instruction
// set.
#if defined(TESSERA_KERNELS_ELEMENTWISE_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ELEMENTWISE_ELEMENTS_INL_H_
#undef TESSERA_KERNELS_ELEMENTWISE_ELEMENTS_INL_H_
#else
#define TESSERA_KERNELS_ELEMENTWISE_ELEMENTS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <hwy/highway.h>
#include <type_traits>

#include <tessera/types.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::ScalableTag<std::int32_t>;
using DU = hn::ScalableTag<std::uint32_t>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;
using MF = hn::Mask<DF>;
using DD = hn::ScalableTag<double>;
using DL = hn::ScalableTag<std::int64_t>;
using DW = hn::ScalableTag<std::uint64_t>;
using VD = hn::Vec<DD>;
using VL = hn::Vec<DL>;
using VW = hn::Vec<DW>;
using MD = hn::Mask<DD>;

// An element type: how it is stored in memory and what an op computes with. All elements of one op
// have the same number of lanes.
template <class D_>
struct Element {
  using D = D_;
  using Memory = hn::TFromD<D>;
  using V = hn::Vec<D>;
  static constexpr std::size_t kLanes = hn::MaxLanes(D());
  static HWY_INLINE V load(const Memory* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE void store(V v, Memory* to) { hn::StoreU(v, D(), to); }
  /// The value that a load would give after `v` was stored.
  static HWY_INLINE V as_stored(V v) { return v; }
};
using F32 = Element<DF>;
using I32 = Element<DI>;
using U32 = Element<DU>;
using F64 = Element<DD>;
using I64 = Element<DL>;
using U64 = Element<DW>;
using Byte = Element<hn::ScalableTag<std::uint8_t>>;

// A bool next to elements of 32 bits: in memory a byte that is 0 or 1, in a register a lane that is
// 0 or 1.
struct Flag {
  using Memory = std::uint8_t;
  using V = VU;
  using DByte = hn::Rebind<std::uint8_t, DU>;
  static constexpr std::size_t kLanes = hn::MaxLanes(DU());
  static HWY_INLINE V load(const Memory* from) {
    return hn::PromoteTo(DU(), hn::LoadU(DByte(), from));
  }
  static HWY_INLINE void store(V v, Memory* to) {
    hn::StoreU(hn::DemoteTo(DByte(), hn::BitCast(DI(), v)), DByte(), to);
  }
  static HWY_INLINE V as_stored(V v) { return v; }
};

// An element of at most 4 bytes next to elements of 8 bytes: in a register, its bits are in the low
// part of a lane.
template <class T>
struct Widened {
  using Memory = T;
  using V = VW;
  using Bits = std::conditional_t<sizeof(T) == 1, std::uint8_t, std::uint32_t>;
  using DBits = hn::Rebind<Bits, DW>;
  static constexpr std::size_t kLanes = F64::kLanes;
  static HWY_INLINE V load(const Memory* from) {
    const auto bits = hn::LoadU(DBits(), reinterpret_cast<const Bits*>(from));
    if constexpr (sizeof(T) == 4) {
      return hn::PromoteTo(DW(), bits);
    } else {
      return hn::PromoteTo(DW(), hn::PromoteTo(hn::Rebind<std::uint32_t, DW>(), bits));
    }
  }
  static HWY_INLINE void store(V v, Memory* to) {
    hn::StoreU(hn::TruncateTo(DBits(), v), DBits(), reinterpret_cast<Bits*>(to));
  }
  static HWY_INLINE V as_stored(V v) { return v; }
};
using WideFlag = Widened<std::uint8_t>;

// The bool next to elements E.
template <class E>
using FlagOf = std::conditional_t<sizeof(typename E::Memory) == 8, WideFlag, Flag>;

// Rounds to the nearest bf16, ties to even; its bits are in the upper half. NaN stays NaN.
struct Rounded {
  static HWY_INLINE VU bits(VF x) {
    const VU from = hn::BitCast(DU(), x);
    const VU is_odd = hn::And(hn::ShiftRight<16>(from), hn::Set(DU(), 1));
    const VU rounded = hn::Add(from, hn::Add(is_odd, hn::Set(DU(), 0x7FFF)));
    const VU quiet = hn::Or(from, hn::Set(DU(), 0x400000));
    const auto is_number = hn::RebindMask(DU(), hn::Eq(x, x));
    return hn::IfThenElse(is_number, rounded, quiet);
  }
  static HWY_INLINE VF run(VF x) {
    return hn::BitCast(DF(), hn::And(bits(x), hn::Set(DU(), 0xFFFF0000U)));
  }
};

// bf16: two bytes in memory, an f32 lane in a register.
struct BF16 {
  using Memory = std::uint16_t;
  using V = VF;
  using DHalf = hn::Rebind<std::uint16_t, DU>;
  static constexpr std::size_t kLanes = hn::MaxLanes(DU());
  static HWY_INLINE V load(const Memory* from) {
    return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), hn::LoadU(DHalf(), from))));
  }
  static HWY_INLINE void store(V v, Memory* to) { store_bits(Rounded::bits(v), to); }
  static HWY_INLINE V as_stored(V v) { return Rounded::run(v); }
  static HWY_INLINE void store_rounded(V v, Memory* to) { store_bits(hn::BitCast(DU(), v), to); }

 private:
  static HWY_INLINE void store_bits(VU bits, Memory* to) {
    hn::StoreU(hn::TruncateTo(DHalf(), hn::ShiftRight<16>(bits)), DHalf(), to);
  }
};

// f16: two bytes in memory, an f32 lane in a register.
struct F16 {
  using Memory = std::uint16_t;
  using V = VF;
  using DHalf = hn::Rebind<hwy::float16_t, DF>;
  using DBits = hn::Rebind<std::uint16_t, DF>;
  static constexpr std::size_t kLanes = hn::MaxLanes(DF());
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  // Without an instruction for them, Highway's conversions lose the sign of small numbers.
  static HWY_INLINE V load(const Memory* from) {
    HWY_ALIGN float lanes[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = float16::from_bits(from[i]);
    return hn::Load(DF(), lanes);
  }
  static HWY_INLINE void store(V v, Memory* to) {
    HWY_ALIGN float lanes[kLanes];
    hn::Store(v, DF(), lanes);
    for (std::size_t i = 0; i < kLanes; ++i) to[i] = float16(lanes[i]).bits();
  }
  static HWY_INLINE V as_stored(V v) {
    Memory halves[kLanes];
    store(v, halves);
    return load(halves);
  }
#else
  static HWY_INLINE V load(const Memory* from) {
    return hn::PromoteTo(DF(), hn::BitCast(DHalf(), hn::LoadU(DBits(), from)));
  }
  static HWY_INLINE void store(V v, Memory* to) {
    hn::StoreU(hn::BitCast(DBits(), hn::DemoteTo(DHalf(), v)), DBits(), to);
  }
  static HWY_INLINE V as_stored(V v) { return hn::PromoteTo(DF(), hn::DemoteTo(DHalf(), v)); }
#endif
};

// A mask of lanes of E as bools.
template <class E, class M>
HWY_INLINE typename FlagOf<E>::V flag(M mask) {
  const hn::DFromV<typename FlagOf<E>::V> d;
  return hn::IfThenElseZero(hn::RebindMask(d, mask), hn::Set(d, 1));
}

// An op without a vector form: calls `Scalar::run` for each lane.
template <class Scalar, class E>
struct PerLane {
  static constexpr bool kIsLong = true;
  using V = typename E::V;

  /// Computes the first `count` lanes. The lanes after them get the result of the last one of
  /// these.
  static HWY_INLINE V run_some(std::size_t count, V a) {
    HWY_ALIGN typename E::Memory x[E::kLanes];
    E::store(a, x);
    for (std::size_t i = 0; i < count; ++i) x[i] = Scalar::run(x[i]);
    std::fill(x + count, x + E::kLanes, x[count - 1]);
    return E::load(x);
  }
  static HWY_INLINE V run_some(std::size_t count, V a, V b) {
    HWY_ALIGN typename E::Memory x[E::kLanes], y[E::kLanes];
    E::store(a, x);
    E::store(b, y);
    for (std::size_t i = 0; i < count; ++i) x[i] = Scalar::run(x[i], y[i]);
    std::fill(x + count, x + E::kLanes, x[count - 1]);
    return E::load(x);
  }
  template <class... X>
  static HWY_INLINE V run(X... x) {
    return run_some(E::kLanes, x...);
  }
};

// Rounds once on every target. Without a hardware FMA, Highway's MulAdd rounds twice.
template <class V>
HWY_INLINE V fused_mul_add(V a, V b, V c) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  using E = Element<hn::DFromV<V>>;
  HWY_ALIGN typename E::Memory x[E::kLanes], y[E::kLanes], z[E::kLanes];
  E::store(a, x);
  E::store(b, y);
  E::store(c, z);
  for (std::size_t i = 0; i < E::kLanes; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return E::load(z);
#else
  return hn::MulAdd(a, b, c);
#endif
}

// Elements of x where the bool next to them is true, and of y where it is false.
template <class E>
struct SelectOf {
  using V = typename E::V;
  using FlagV = typename FlagOf<E>::V;
  static HWY_INLINE V run(FlagV which, V x, V y) {
    const hn::DFromV<FlagV> flags;
    return hn::IfThenElse(hn::RebindMask(typename E::D(), hn::Ne(which, hn::Zero(flags))), x, y);
  }
};

struct Copy {
  template <class V>
  static HWY_INLINE V run(V x) {
    return x;
  }
};

}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
