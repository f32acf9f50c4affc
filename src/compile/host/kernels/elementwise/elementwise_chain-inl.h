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

#include <algorithm>
#include <tuple>
#include <type_traits>

#include "compile/host/kernels/elementwise/elementwise_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {

constexpr std::size_t kChainVectors = 8;
template <class... X>
using StageOf = void (*)(const Stage*, std::size_t, X...);

// All vectors of a stage have the same type.
template <class... X>
constexpr std::size_t kBlockOf = (... + hn::MaxLanes(hn::DFromV<X>()));
template <class... X>
using VectorOf = std::tuple_element_t<0, std::tuple<X...>>;

// Between stages a value is kept as the bits in lanes that a load from memory would give.
template <class E, class X>
HWY_INLINE typename E::V from_lanes(X x) {
  return hn::BitCast(hn::DFromV<typename E::V>(), x);
}
template <class E, class X>
HWY_INLINE void to_lanes(typename E::V value, X& x) {
  x = hn::BitCast(hn::DFromV<X>(), E::as_stored(value));
}

// Stores what as_stored() gave.
template <class E>
HWY_INLINE void store_lanes(typename E::V v, typename E::Memory* to) {
  if constexpr (requires { E::store_rounded(v, to); }) {
    E::store_rounded(v, to);
  } else {
    E::store(v, to);
  }
}

// The vectors of an operand in the block that begins at element i.
template <class E>
class Stream {
 public:
  HWY_INLINE Stream(const StageOperand& operand, std::size_t i)
      : at_(reinterpret_cast<const typename E::Memory*>(operand.base) + (i & operand.mask)) {}
  HWY_INLINE typename E::V operator[](std::size_t vector) const {
    return E::load(at_ + vector * E::kLanes);
  }

 private:
  const typename E::Memory* at_;
};

// Ops of many instructions: their code is not repeated for every vector.
template <class Op>
concept IsLong = requires {
  Op::kIsLong;
};

// Replaces each vector x by f(x, index of x, wanted elements of x). Only `num_wanted` elements of
// the block are wanted: ops of many instructions skip the vectors after them.
template <class Op, class F, class... X>
HWY_INLINE void map_vectors(const F& f, std::size_t num_wanted, X&... x) {
  using D = hn::DFromV<VectorOf<X...>>;
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  std::size_t k = 0;
  if constexpr (!IsLong<Op>) {
    (f(x, k++, kLanes), ...);
  } else if constexpr (sizeof...(X) == 1) {
    f(x..., 0, std::min(num_wanted, kLanes));
  } else {
    HWY_ALIGN hn::TFromD<D> lanes[kChainVectors * kLanes];
    (hn::Store(x, D(), lanes + k++ * kLanes), ...);
#pragma GCC unroll 1
    for (k = 0; k < kChainVectors && k * kLanes < num_wanted; ++k) {
      VectorOf<X...> one = hn::Load(D(), lanes + k * kLanes);
      f(one, k, std::min(num_wanted - k * kLanes, kLanes));
      hn::Store(one, D(), lanes + k * kLanes);
    }
    k = 0;
    ((x = hn::Load(D(), lanes + k++ * kLanes)), ...);
  }
}

// Runs the op on vectors of which `count` elements are wanted.
template <class Op, class... V>
HWY_INLINE auto apply(std::size_t count, V... x) {
  if constexpr (requires { Op::run_some(count, x...); }) {
    return Op::run_some(count, x...);
  } else {
    return Op::run(x...);
  }
}

// Chains read more streams at once than the prefetcher of a processor can follow. Each stage
// prefetches a single stream, because only a few lines can be in flight at once. It does so early
// enough for code that reads the next tile before the chain does.
template <std::size_t kBlock>
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
    ((x = hn::BitCast(hn::DFromV<X>(), from[k++])), ...);
  }
  map_vectors<Op>(f, stage->num_wanted, x...);
  if (stage->to.base != nullptr) {
    auto* to = reinterpret_cast<typename Out::Memory*>(const_cast<std::byte*>(stage->to.base)) +
               (i & stage->to.mask);
    std::size_t k = 0;
    (store_lanes<Out>(from_lanes<Out>(x), to + k++ * Out::kLanes), ...);
  }
  if constexpr (sizeof...(X) > 1) {
    if (stage->later != nullptr) prefetch_later<kBlockOf<X...>>(stage, i);
  }
  reinterpret_cast<StageOf<X...>>(stage[1].function)(stage + 1, i, x...);
}

template <class Op, class Out, class A, class... X>
void stage1(const Stage* stage, std::size_t i, X... x) {
  const auto f = [](auto& v, std::size_t, std::size_t n) {
    to_lanes<Out>(apply<Op>(n, from_lanes<A>(v)), v);
  };
  run_stage<Op, Out, A>(stage, i, f, x...);
}

template <std::size_t kPlace, class Op, class Out, class A, class B, class... X>
void stage2(const Stage* stage, std::size_t i, X... x) {
  const Stream<std::conditional_t<kPlace == 0, B, A>> other(stage->others[0], i);
  const auto f = [&other](auto& v, std::size_t k, std::size_t n) {
    if constexpr (kPlace == 0) {
      to_lanes<Out>(apply<Op>(n, from_lanes<A>(v), other[k]), v);
    } else {
      to_lanes<Out>(apply<Op>(n, other[k], from_lanes<B>(v)), v);
    }
  };
  run_stage<Op, Out, std::conditional_t<kPlace == 0, A, B>>(stage, i, f, x...);
}

template <std::size_t kPlace, class Op, class Out, class A, class B, class C, class... X>
void stage3(const Stage* stage, std::size_t i, X... x) {
  const Stream<std::conditional_t<kPlace == 0, B, A>> first(stage->others[0], i);
  const Stream<std::conditional_t<kPlace == 2, B, C>> second(stage->others[1], i);
  const auto f = [&first, &second](auto& v, std::size_t k, std::size_t n) {
    if constexpr (kPlace == 0) {
      to_lanes<Out>(apply<Op>(n, from_lanes<A>(v), first[k], second[k]), v);
    } else if constexpr (kPlace == 1) {
      to_lanes<Out>(apply<Op>(n, first[k], from_lanes<B>(v), second[k]), v);
    } else {
      to_lanes<Out>(apply<Op>(n, first[k], second[k], from_lanes<C>(v)), v);
    }
  };
  using In = std::conditional_t<kPlace == 0, A, std::conditional_t<kPlace == 1, B, C>>;
  run_stage<Op, Out, In>(stage, i, f, x...);
}

using AnyFunction = void (*)();

// Stages of vectors X, all of one type.
template <class... X>
struct Stages {
  using Function = StageOf<X...>;
  static AnyFunction any(Function function) { return reinterpret_cast<AnyFunction>(function); }

  template <class Op, class Out, class... In>
  static void add(AnyFunction (&stages)[3]) {
    if constexpr (sizeof...(In) == 1) {
      stages[0] = any(&stage1<Op, Out, In...>);
    } else if constexpr (sizeof...(In) == 2) {
      stages[0] = any(&stage2<0, Op, Out, In...>);
      stages[1] = any(&stage2<1, Op, Out, In...>);
    } else {
      stages[0] = any(&stage3<0, Op, Out, In...>);
      stages[1] = any(&stage3<1, Op, Out, In...>);
      stages[2] = any(&stage3<2, Op, Out, In...>);
    }
  }
};

// The stages of one vector and of kChainVectors for lanes of 4 bytes, or of 8 if `wide`.
template <bool wide>
struct Forms {
  using V = std::conditional_t<wide, VD, VF>;
  using Short = Stages<V>;
  using Long = Stages<V, V, V, V, V, V, V, V>;

  template <class Op, class Out, class... In>
  static void add(TileKernel& kernel) {
    Short::template add<Op, Out, In...>(kernel.stages[ChainForm{wide, true}.index()]);
    Long::template add<Op, Out, In...>(kernel.stages[ChainForm{wide, false}.index()]);
  }
};

template <class Op, class Out, class A>
TileKernel run_kernel() {
  return {.run = &run1<Op, Out, A>, .stages = {}};
}
template <class Op, class Out, class A, class B>
TileKernel run_kernel() {
  return {.run = &run2<Op, Out, A, B>, .stages = {}};
}
template <class Op, class Out, class A, class B, class C>
TileKernel run_kernel() {
  return {.run = &run3<Op, Out, A, B, C>, .stages = {}};
}

template <class... E>
constexpr bool kHasWide = (... || (sizeof(typename E::Memory) == 8));

// The kernel of an op of vectors. Between stages a bool has lanes as wide as those of the other
// elements.
template <class Op, class... E>
TileKernel kernel() {
  TileKernel result = run_kernel<Op, E...>();
  if constexpr (std::conjunction_v<std::is_same<E, Byte>...>) {
    Forms<false>::add<Op, std::conditional_t<true, Flag, E>...>(result);
    Forms<true>::add<Op, std::conditional_t<true, WideFlag, E>...>(result);
  } else {
    Forms<kHasWide<E...>>::template add<Op, E...>(result);
  }
  return result;
}

template <class Op, class E>
TileKernel unary() {
  return kernel<Op, E, E>();
}
template <class Op, class E>
TileKernel binary() {
  return kernel<Op, E, E, E>();
}
template <class Op, class E>
TileKernel compare() {
  return kernel<Op, FlagOf<E>, E, E>();
}

}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
