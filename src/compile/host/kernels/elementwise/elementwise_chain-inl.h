// Elementwise ops as stages of chains, compiled once per instruction set.
//
// A stage takes kChainVectors vectors as arguments, or one in short chains, which the calling
// convention keeps in registers. It ends by calling the next stage; compilers turn this tail call
// into a jump.
#if defined(TESSERA_KERNELS_ELEMENTWISE_CHAIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ELEMENTWISE_CHAIN_INL_H_
#undef TESSERA_KERNELS_ELEMENTWISE_CHAIN_INL_H_
#else
#define TESSERA_KERNELS_ELEMENTWISE_CHAIN_INL_H_
#endif

#include <type_traits>

#include "compile/host/kernels/elementwise/elementwise_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {

constexpr std::size_t kChainVectors = 8;
constexpr std::size_t kBlock = kChainVectors * F32::kLanes;
template <class... X>
using StageOf = void (*)(const Stage*, std::size_t, X...);
using StageFunction = StageOf<VF, VF, VF, VF, VF, VF, VF, VF>;
using ShortStageFunction = StageOf<VF>;

// Between stages a value is kept as the bits in f32 lanes that a load from memory would give.
template <class E>
HWY_INLINE typename E::V from_lanes(VF x) {
  return hn::BitCast(hn::DFromV<typename E::V>(), x);
}
template <class E>
HWY_INLINE VF to_lanes(typename E::V x) {
  return hn::BitCast(DF(), E::as_stored(x));
}

// The vectors of an operand in the block that begins at element i.
template <class E>
class Stream {
 public:
  HWY_INLINE Stream(const StageOperand& operand, std::size_t i)
      : at_(reinterpret_cast<const typename E::Memory*>(operand.base) + (i & operand.mask)) {}
  HWY_INLINE typename E::V operator[](std::size_t vector) const {
    return E::load(at_ + vector * F32::kLanes);
  }

 private:
  const typename E::Memory* at_;
};

// Ops of many instructions: their code is not repeated for every vector.
template <class Op>
concept IsLong = requires {
  Op::kIsLong;
};

// Replaces each vector x by f(x, index of x). Ops of many instructions leave out the vectors after
// the first `num_wanted` elements.
template <class Op, class F, class... X>
HWY_INLINE void map_vectors(const F& f, std::size_t num_wanted, X&... x) {
  std::size_t k = 0;
  if constexpr (!IsLong<Op> || sizeof...(X) == 1) {
    ((x = f(x, k++)), ...);
  } else {
    HWY_ALIGN float lanes[kChainVectors * F32::kLanes];
    (F32::store(x, lanes + k++ * F32::kLanes), ...);
#pragma GCC unroll 1
    for (k = 0; k < kChainVectors && k * F32::kLanes < num_wanted; ++k) {
      float* at = lanes + k * F32::kLanes;
      F32::store(f(F32::load(at), k), at);
    }
    k = 0;
    ((x = F32::load(lanes + k++ * F32::kLanes)), ...);
  }
}

// Chains read more streams at once than the prefetcher of a processor can follow. Each stage
// prefetches a single stream, because only a few lines can be in flight at once. It does so early
// enough for code that reads the next tile before the chain does.
HWY_INLINE void prefetch_later(const Stage* stage, std::size_t i) {
  constexpr std::size_t kAhead = 2048;
  constexpr int kSecondCache = 1;
  const std::byte* at = stage->later + (i + kAhead) * stage->later_bytes;
  const std::size_t bytes = kBlock * stage->later_bytes;
  for (std::size_t line = 0; line < bytes; line += 64) {
    __builtin_prefetch(at + line, 0, kSecondCache);
  }
}

// Runs a whole stage: x has type `In` if it is read from memory. Loads and stores are part of the
// stage because a separate stage would cost a jump, which takes longer than they do.
template <class Op, class Out, class In, class F, class... X>
HWY_INLINE void run_stage(const Stage* stage, std::size_t i, const F& f, X... x) {
  if (stage->from.base != nullptr) {
    const Stream<In> from(stage->from, i);
    std::size_t k = 0;
    ((x = to_lanes<In>(from[k++])), ...);
  }
  map_vectors<Op>(f, stage->num_wanted, x...);
  if (stage->to.base != nullptr) {
    auto* to = reinterpret_cast<typename Out::Memory*>(const_cast<std::byte*>(stage->to.base)) +
               (i & stage->to.mask);
    std::size_t k = 0;
    (Out::store(from_lanes<Out>(x), to + k++ * F32::kLanes), ...);
  }
  if constexpr (sizeof...(X) > 1) {
    if (stage->later != nullptr) prefetch_later(stage, i);
  }
  reinterpret_cast<StageOf<X...>>(stage[1].function)(stage + 1, i, x...);
}

template <class Op, class Out, class A, class... X>
void stage1(const Stage* stage, std::size_t i, X... x) {
  const auto f = [](VF v, std::size_t) { return to_lanes<Out>(Op::run(from_lanes<A>(v))); };
  run_stage<Op, Out, A>(stage, i, f, x...);
}

template <std::size_t kPlace, class Op, class Out, class A, class B, class... X>
void stage2(const Stage* stage, std::size_t i, X... x) {
  const Stream<std::conditional_t<kPlace == 0, B, A>> other(stage->others[0], i);
  const auto f = [&other](VF v, std::size_t k) {
    if constexpr (kPlace == 0) {
      return to_lanes<Out>(Op::run(from_lanes<A>(v), other[k]));
    } else {
      return to_lanes<Out>(Op::run(other[k], from_lanes<B>(v)));
    }
  };
  run_stage<Op, Out, std::conditional_t<kPlace == 0, A, B>>(stage, i, f, x...);
}

template <std::size_t kPlace, class Op, class Out, class A, class B, class C, class... X>
void stage3(const Stage* stage, std::size_t i, X... x) {
  const Stream<std::conditional_t<kPlace == 0, B, A>> first(stage->others[0], i);
  const Stream<std::conditional_t<kPlace == 2, B, C>> second(stage->others[1], i);
  const auto f = [&first, &second](VF v, std::size_t k) {
    if constexpr (kPlace == 0) {
      return to_lanes<Out>(Op::run(from_lanes<A>(v), first[k], second[k]));
    } else if constexpr (kPlace == 1) {
      return to_lanes<Out>(Op::run(first[k], from_lanes<B>(v), second[k]));
    } else {
      return to_lanes<Out>(Op::run(first[k], second[k], from_lanes<C>(v)));
    }
  };
  using In = std::conditional_t<kPlace == 0, A, std::conditional_t<kPlace == 1, B, C>>;
  run_stage<Op, Out, In>(stage, i, f, x...);
}

using AnyFunction = void (*)();
inline AnyFunction any(StageFunction function) { return reinterpret_cast<AnyFunction>(function); }
inline AnyFunction any_short(ShortStageFunction function) {
  return reinterpret_cast<AnyFunction>(function);
}

// Between stages a bool has lanes as wide as those of the other elements.
template <class E>
using Laned = std::conditional_t<std::is_same_v<E, Byte>, Flag, E>;

template <class Op, class Out, class A>
TileKernel kernel() {
  return {&run1<Op, Out, A>,
          {any(&stage1<Op, Laned<Out>, Laned<A>>)},
          {any_short(&stage1<Op, Laned<Out>, Laned<A>>)}};
}
template <class Op, class Out, class A, class B>
TileKernel kernel() {
  return {&run2<Op, Out, A, B>,
          {any(&stage2<0, Op, Laned<Out>, Laned<A>, Laned<B>>),
           any(&stage2<1, Op, Laned<Out>, Laned<A>, Laned<B>>)},
          {any_short(&stage2<0, Op, Laned<Out>, Laned<A>, Laned<B>>),
           any_short(&stage2<1, Op, Laned<Out>, Laned<A>, Laned<B>>)}};
}
template <class Op, class Out, class A, class B, class C>
TileKernel kernel() {
  return {&run3<Op, Out, A, B, C>,
          {any(&stage3<0, Op, Laned<Out>, Laned<A>, Laned<B>, Laned<C>>),
           any(&stage3<1, Op, Laned<Out>, Laned<A>, Laned<B>, Laned<C>>),
           any(&stage3<2, Op, Laned<Out>, Laned<A>, Laned<B>, Laned<C>>)},
          {any_short(&stage3<0, Op, Laned<Out>, Laned<A>, Laned<B>, Laned<C>>),
           any_short(&stage3<1, Op, Laned<Out>, Laned<A>, Laned<B>, Laned<C>>),
           any_short(&stage3<2, Op, Laned<Out>, Laned<A>, Laned<B>, Laned<C>>)}};
}

}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
