// Loops over runs of elements, compiled once per instruction set.
#if defined(TESSERA_KERNELS_ELEMENTWISE_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ELEMENTWISE_LOOPS_INL_H_
#undef TESSERA_KERNELS_ELEMENTWISE_LOOPS_INL_H_
#else
#define TESSERA_KERNELS_ELEMENTWISE_LOOPS_INL_H_
#endif

#include <cstddef>
#include <cstring>
#include <hwy/highway.h>

#include "compile/host/kernels/elementwise/elementwise_elements-inl.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {

// An operand and the position in it, which advances by `step`. A scalar is copied to a vector and
// does not advance, so that one loop handles any mixture of scalars and runs.
template <class E>
struct Operand {
  using Memory = typename E::Memory;
  HWY_ALIGN Memory lanes[E::kLanes] = {};

  HWY_INLINE const Memory* begin(const TileInput& input) {
    const auto* data = static_cast<const Memory*>(input.data);
    if (!input.is_scalar) return data;
    for (Memory& lane : lanes) lane = *data;
    return lanes;
  }
  static HWY_INLINE std::size_t step(const TileInput& input) {
    return input.is_scalar ? 0 : E::kLanes;
  }
  /// Loads the last n elements, padded to a vector.
  HWY_INLINE typename E::V load_rest(const TileInput& input, const Memory* at, std::size_t n) {
    if (!input.is_scalar) std::memcpy(lanes, at, n * sizeof(Memory));
    return E::load(lanes);
  }
};

template <class E>
HWY_INLINE void store_rest(typename E::V v, typename E::Memory* to, std::size_t n) {
  HWY_ALIGN typename E::Memory lanes[E::kLanes];
  E::store(v, lanes);
  std::memcpy(to, lanes, n * sizeof(typename E::Memory));
}

template <class Op, class Out, class A>
void run1(const TileInput* inputs, void* output, std::size_t n) {
  constexpr std::size_t kLanes = A::kLanes;
  Operand<A> first;
  const auto* a = first.begin(inputs[0]);
  const std::size_t step_a = Operand<A>::step(inputs[0]);
  auto* out = static_cast<typename Out::Memory*>(output);
  for (; n >= kLanes; n -= kLanes) {
    Out::store(Op::run(A::load(a)), out);
    a += step_a;
    out += kLanes;
  }
  if (n > 0) store_rest<Out>(Op::run(first.load_rest(inputs[0], a, n)), out, n);
}

// Computes two vectors per iteration, because most of these ops take less time than the loop
// overhead.
template <class Op, class Out, class A, class B>
void run2(const TileInput* inputs, void* output, std::size_t n) {
  constexpr std::size_t kLanes = A::kLanes;
  Operand<A> first;
  Operand<B> second;
  const auto* a = first.begin(inputs[0]);
  const auto* b = second.begin(inputs[1]);
  const std::size_t step_a = Operand<A>::step(inputs[0]);
  const std::size_t step_b = Operand<B>::step(inputs[1]);
  auto* out = static_cast<typename Out::Memory*>(output);
  for (; n >= 2 * kLanes; n -= 2 * kLanes) {
    const auto low = Op::run(A::load(a), B::load(b));
    const auto high = Op::run(A::load(a + step_a), B::load(b + step_b));
    Out::store(low, out);
    Out::store(high, out + kLanes);
    a += 2 * step_a;
    b += 2 * step_b;
    out += 2 * kLanes;
  }
  for (; n >= kLanes; n -= kLanes) {
    Out::store(Op::run(A::load(a), B::load(b)), out);
    a += step_a;
    b += step_b;
    out += kLanes;
  }
  if (n > 0) {
    const auto va = first.load_rest(inputs[0], a, n);
    store_rest<Out>(Op::run(va, second.load_rest(inputs[1], b, n)), out, n);
  }
}

template <class Op, class Out, class A, class B, class C>
void run3(const TileInput* inputs, void* output, std::size_t n) {
  constexpr std::size_t kLanes = A::kLanes;
  Operand<A> first;
  Operand<B> second;
  Operand<C> third;
  const auto* a = first.begin(inputs[0]);
  const auto* b = second.begin(inputs[1]);
  const auto* c = third.begin(inputs[2]);
  const std::size_t step_a = Operand<A>::step(inputs[0]);
  const std::size_t step_b = Operand<B>::step(inputs[1]);
  const std::size_t step_c = Operand<C>::step(inputs[2]);
  auto* out = static_cast<typename Out::Memory*>(output);
  for (; n >= kLanes; n -= kLanes) {
    Out::store(Op::run(A::load(a), B::load(b), C::load(c)), out);
    a += step_a;
    b += step_b;
    c += step_c;
    out += kLanes;
  }
  if (n > 0) {
    const auto va = first.load_rest(inputs[0], a, n);
    const auto vb = second.load_rest(inputs[1], b, n);
    store_rest<Out>(Op::run(va, vb, third.load_rest(inputs[2], c, n)), out, n);
  }
}

}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
